package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	"github.com/multiformats/go-multistream"
)

// probeTimeout is how long an older connection may take to answer.
const probeTimeout = 3 * time.Second

// probe closes the older connections to the peer of fresh that do not answer any more. A peer that lost
// power and came back leaves one behind that stays open until it times out, tens of seconds later; until
// then protocols that think in peers and not in connections, as pubsub does, take it for never gone and do
// not greet it again.
func (h *Host) probe(ctx context.Context, fresh network.Conn) {
	for _, c := range h.Network().ConnsToPeer(fresh.RemotePeer()) {
		if c == fresh || !c.Stat().Opened.Before(fresh.Stat().Opened) || answers(ctx, c) {
			continue
		}
		h.log.Debug("closing a connection that a newer one replaces", "peer", c.RemotePeer(), "age", time.Since(c.Stat().Opened))
		_ = c.Close()
	}
}

// answers pings over c.
func answers(ctx context.Context, c network.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s, err := c.NewStream(network.WithAllowLimitedConn(ctx, "probe"))
	if err != nil {
		return errors.Is(ctx.Err(), context.Canceled) // we are stopping: no verdict
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(probeTimeout))
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
