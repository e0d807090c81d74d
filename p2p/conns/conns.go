// Package conns manages peers with several connections. It tests which connections are alive, closes replaced ones, and
// detects relayed ones.
package conns

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	"github.com/multiformats/go-multistream"

	"github.com/starling-network/starling/p2p/addr"
)

const (
	// probeTimeout is how long a connection may take to answer at the most.
	probeTimeout = 3 * time.Second
	// probeLeast is the minimum timeout of an older connection, besides twice the newer one's time. It is short, since
	// a peer that moved to another relay waits for it, and may be paid too late.
	probeLeast = 500 * time.Millisecond
)

// Direct reports whether there is a connection to p without a relay.
func Direct(h host.Host, p peer.ID) bool {
	return slices.ContainsFunc(h.Network().ConnsToPeer(p), func(c network.Conn) bool { return !Relayed(c) })
}

// Relayed reports whether a connection leads through a relay.
func Relayed(c network.Conn) bool { return addr.Circuit(c.RemoteMultiaddr()) }

// Forgive forgets failed dials to p, so that the next call dials at once.
func Forgive(h host.Host, p peer.ID) {
	if s, ok := h.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(p)
	}
}

// CloseStale closes the older connections to the peer of fresh that no longer answer. After a power loss, a peer's old
// connection stays open until its timeout, tens of seconds later. Until then, protocols that track peers instead of
// connections, such as pubsub, do not notice the restart and send no new greeting.
func CloseStale(ctx context.Context, h host.Host, fresh network.Conn, log *slog.Logger) {
	begun := time.Now()
	if !Answers(ctx, fresh, probeTimeout) {
		return // then the older one is as good
	}
	patience := min(2*time.Since(begun)+probeLeast, probeTimeout)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range h.Network().ConnsToPeer(fresh.RemotePeer()) {
		if c == fresh || !c.Stat().Opened.Before(fresh.Stat().Opened) {
			continue
		}
		wg.Go(func() {
			if Answers(ctx, c, patience) {
				return
			}
			log.Debug("closing a connection that a newer one replaces", "peer", c.RemotePeer(), "age",
				time.Since(c.Stat().Opened))
			_ = c.Close()
		})
	}
}

// Answers reports whether the peer of c answers a ping over it within the time of patience. It reports true if ctx is
// cancelled first: that is no verdict.
func Answers(ctx context.Context, c network.Conn, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.NewStream(network.WithAllowLimitedConn(ctx, "probe"))
	if err != nil {
		return errors.Is(ctx.Err(), context.Canceled)
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(patience))
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	err = multistream.SelectProtoOrFail(protocol.ID(ping.ID), s)
	var unsupported multistream.ErrNotSupported[protocol.ID]
	if errors.As(err, &unsupported) {
		return true // that was an answer
	}
	var sent, got [ping.PingSize]byte
	_, _ = rand.Read(sent[:]) // never fails
	if err == nil {
		_, err = s.Write(sent[:])
	}
	if err == nil {
		_, err = io.ReadFull(s, got[:])
	}
	return err == nil && got == sent || errors.Is(ctx.Err(), context.Canceled)
}

// CloseRelayed closes relayed connections that a direct one has replaced, once none of our streams uses them: new
// streams take the direct one, and old streams are not cut.
func CloseRelayed(h host.Host, log *slog.Logger) {
	for _, p := range h.Network().Peers() {
		if !Direct(h, p) {
			continue
		}
		for _, c := range h.Network().ConnsToPeer(p) {
			if Relayed(c) && !slices.ContainsFunc(c.GetStreams(), busy) {
				log.Debug("closing a relayed connection that a direct one replaces", "peer", p)
				_ = c.Close()
			}
		}
	}
}

// busy reports whether tearing a stream would be noticed. Gossip and the DHT keep streams open and open others by
// themselves.
func busy(s network.Stream) bool {
	id := string(s.Protocol())
	return strings.HasPrefix(id, "/starling/") && !strings.Contains(id, "/kad/") && !strings.Contains(id, "/meshsub/")
}
