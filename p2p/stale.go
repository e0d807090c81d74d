package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
)

const (
	// probeTimeout is how long a connection may take to answer at the most.
	probeTimeout = 3 * time.Second
	// probeLeast is how long an older connection has at the least, beside twice the time of the newer one: a peer that
	// moved to another relay waits for nothing else, and may be paid too late.
	probeLeast = 500 * time.Millisecond
)

// probe closes the older connections to the peer of fresh that do not answer any more. A peer that lost
// power and came back leaves one behind that stays open until it times out, tens of seconds later; until
// then protocols that think in peers and not in connections, as pubsub does, take it for never gone and do
// not greet it again.
func (h *Host) probe(ctx context.Context, fresh network.Conn) {
	begun := time.Now()
	if !answers(ctx, fresh, probeTimeout) {
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
			if answers(ctx, c, patience) {
				return
			}
			h.log.Debug("closing a connection that a newer one replaces", "peer", c.RemotePeer(), "age",
				time.Since(c.Stat().Opened))
			_ = c.Close()
		})
	}
}

// answers pings over c.
func answers(ctx context.Context, c network.Conn, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := c.NewStream(network.WithAllowLimitedConn(ctx, "probe"))
	if err != nil {
		return errors.Is(ctx.Err(), context.Canceled) // we are stopping: no verdict
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

// retire closes relayed connections that a direct one has replaced, once none of our streams uses them: new streams
// take the direct one, and old streams are not cut.
func (h *Host) retire() {
	for _, p := range h.Network().Peers() {
		if !h.direct(p) {
			continue
		}
		for _, c := range h.Network().ConnsToPeer(p) {
			if has(c.RemoteMultiaddr(), ma.P_CIRCUIT) && !slices.ContainsFunc(c.GetStreams(), busy) {
				h.log.Debug("closing a relayed connection that a direct one replaces", "peer", p)
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
