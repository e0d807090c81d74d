package p2p

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// MaxPings is how many round trips one Ping measures at most.
	MaxPings = 100
	// pingTimeout bounds one round trip.
	pingTimeout = 10 * time.Second
	// pingAddrTTL is the time that the addresses given to a ping are kept. It is no TTL of libp2p's own: identify drops
	// addresses with its temporary one, also new ones.
	pingAddrTTL = 5 * time.Minute
	// pingTries is how often a connection that closes immediately is opened again, before its peer counts as gone.
	pingTries = 3
	// punchedWithin is how long after a relayed connection a direct one counts as opened with the relay's help.
	punchedWithin = time.Minute
)

// Path is how a connection runs.
type Path string

const (
	PathDirect  Path = "direct"  // we dialled, or were dialled
	PathPunched Path = "punched" // direct through NATs, which a relay helped to open
	PathRelayed Path = "relayed"
)

// Conn is a connection, for display.
type Conn struct {
	Path    Path
	Via     peer.ID // the relay of a relayed connection
	Addr    ma.Multiaddr
	Inbound bool
	Limited bool // its relay allows little
	Opened  time.Time
}

// Describe returns the path of a connection. A direct one counts as punched if a relayed one came before it or exists
// beside it.
func (h *Host) Describe(c network.Conn) Conn {
	d := Conn{Path: PathDirect, Addr: c.RemoteMultiaddr(), Inbound: c.Stat().Direction == network.DirInbound,
		Limited: c.Stat().Limited, Opened: c.Stat().Opened}
	if addr.Circuit(d.Addr) {
		d.Path, d.Via = PathRelayed, addr.Relay(d.Addr)
	} else if h.relayedBefore(c.RemotePeer(), d.Opened) {
		d.Path = PathPunched
	}
	return d
}

// relayedBefore reports whether a relayed connection to p stood when a direct one was opened, or shortly before.
func (h *Host) relayedBefore(p peer.ID, opened time.Time) bool {
	for _, c := range h.Network().ConnsToPeer(p) {
		if conns.Relayed(c) && c.Stat().Opened.Before(opened) {
			return true
		}
	}
	at, ok := h.viaRelay.Get(p)
	return ok && !opened.Before(at) && opened.Sub(at) < punchedWithin
}

// Carries is the number of bytes that the widest connection to a peer carries before its relay cuts it. It is 0 if
// there is a direct one, none at all, or no known limit.
func (h *Host) Carries(p peer.ID) int64 {
	var most int64
	for _, c := range h.Network().ConnsToPeer(p) {
		r := stream.RelayedBy(c)
		if r == nil || r.Data == 0 {
			return 0
		}
		most = max(most, r.Data)
	}
	return most
}

// PingResult is the result of pinging a peer.
type PingResult struct {
	Peer  peer.ID
	Conn  Conn
	RTTs  []time.Duration // of each round
	Fresh bool            // the connection was opened for this
}

// Ping measures the round trips to a peer, over the connection that other protocols would use now. If there is none, it
// dials, also through relays. addrs may be empty. An error is a [*Diagnosis], or the context's.
func (h *Host) Ping(ctx context.Context, p peer.AddrInfo, rounds int) (PingResult, error) {
	r := PingResult{Peer: p.ID}
	if p.ID == h.ID() {
		return r, fmt.Errorf("pinging %s: that is this peer itself", p.ID)
	}
	h.Peerstore().AddAddrs(p.ID, p.Addrs, pingAddrTTL)
	if h.dials != nil {
		h.dials.Name(p.Addrs...)
	}
	r.Fresh = h.Network().Connectedness(p.ID) == network.NotConnected
	if r.Fresh {
		h.Find(ctx, p.ID)
	}
	var err error
	for range pingTries {
		h.Forgive(p.ID)
		h.Peerstore().AddAddrs(p.ID, p.Addrs, pingAddrTTL)
		var again bool
		if again, err = h.ping(ctx, &r, min(max(rounds, 1), MaxPings)); !again {
			break
		}
	}
	if err == nil && h.membership.foreigner(p.ID) {
		err = errors.New("peer belongs to another network")
	}
	if err == nil {
		return r, nil
	}
	if d := h.Diagnose(p.ID, err); d != nil && ctx.Err() == nil {
		return r, d
	}
	return r, fmt.Errorf("pinging %s: %w", p.ID, err)
}

// ping is one attempt; again reports whether the connection had gone before anything was said on it.
func (h *Host) ping(ctx context.Context, r *PingResult, rounds int) (again bool, err error) {
	ctx = network.WithAllowLimitedConn(ctx, "ping")
	c, err := h.Network().DialPeer(ctx, r.Peer)
	if err != nil {
		return false, err
	}
	opening, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	s, err := c.NewStream(opening)
	if err != nil {
		return c.IsClosed() && !told(err), err
	}
	defer func() { _ = s.Reset() }()
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	_ = s.SetDeadline(time.Now().Add(pingTimeout))
	err = multistream.SelectProtoOrFail(protocol.ID(ping.ID), s)
	if err == nil {
		err = s.SetProtocol(ping.ID)
	}
	r.Conn = h.Describe(c)
	var sent, got [ping.PingSize]byte
	for len(r.RTTs) < rounds && err == nil {
		_, _ = rand.Read(sent[:]) // never fails
		began := time.Now()
		_ = s.SetDeadline(began.Add(pingTimeout))
		if _, err = s.Write(sent[:]); err == nil {
			_, err = io.ReadFull(s, got[:])
		}
		if err == nil && got != sent {
			err = errors.New("echo: differs from the request")
		}
		if err == nil {
			rtt := time.Since(began)
			h.Peerstore().RecordLatency(r.Peer, rtt)
			r.RTTs = append(r.RTTs, rtt)
		}
	}
	if ids, ok := h.Host.(interface{ IDService() identify.IDService }); ok && err == nil {
		select { // any libp2p peer answers pings: identify returns its identity
		case <-ids.IDService().IdentifyWait(c):
		case <-opening.Done():
		}
		if _, unnamed := h.Peerstore().Get(r.Peer, "ProtocolVersion"); unnamed != nil && c.IsClosed() {
			r.RTTs, err = nil, errors.New("peer closed the connection before it identified itself")
		}
	}
	return err != nil && len(r.RTTs) == 0 && c.IsClosed() && !told(err), err
}

// told reports whether the other side gave a reason for closing the connection.
func told(err error) bool {
	code, ok := goodbye(err)
	return ok && code != network.ConnNoError
}
