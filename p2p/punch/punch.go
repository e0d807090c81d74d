// Package punch turns relayed connections into direct ones, through the NATs at both ends. libp2p punches a hole once,
// when a relayed connection is opened. A path may open later: a router was restarted, a firewall's rule went, the
// addresses that others see were not known yet. So relayed connections are tried again.
package punch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/util"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch/pb"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/conns"
)

const (
	// firstPause is how long after a relayed connection was opened it is tried again; the pause grows by half up to
	// lastPause.
	firstPause = 10 * time.Second
	lastPause  = 15 * time.Minute
	// roundEvery is the interval of rounds, in which the due connections are tried.
	roundEvery = 5 * time.Second
	// tryTime bounds one attempt.
	tryTime = 10 * time.Second
	// triesAtOnce bounds the attempts of one round.
	triesAtOnce = 8
	// maxMessage bounds one message of the protocol, as in libp2p.
	maxMessage = 4 << 10
	// maxSeen is how many addresses are remembered at which others see us.
	maxSeen = 8
)

// Puncher tries again to turn the relayed connections of a host into direct ones.
type Puncher struct {
	h   host.Host
	log *slog.Logger

	mu   sync.Mutex
	seen []ma.Multiaddr    // public addresses at which others see us, latest last
	due  map[peer.ID]*turn // relayed peers
}

// turn is the next attempt for a peer.
type turn struct {
	at    time.Time
	pause time.Duration
	tries int
}

// attempt is a connection to try now. The first time its peer is dialled before anything else; later that would only
// take the ports of the dial that matters.
type attempt struct {
	network.Conn
	first bool
}

// New returns the Puncher of a host.
func New(h host.Host, log *slog.Logger) *Puncher {
	return &Puncher{h: h, log: log, due: make(map[peer.ID]*turn)}
}

// Observed notes the address at which the peer of a connection sees this host.
func (p *Puncher) Observed(c network.Conn, at ma.Multiaddr) {
	if at == nil || conns.Relayed(c) || addr.ClassOf(at) != addr.Public {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = slices.DeleteFunc(p.seen, at.Equal)
	p.seen = append(p.seen, at)
	p.seen = p.seen[max(0, len(p.seen)-maxSeen):]
}

// Run tries until ctx ends.
func (p *Puncher) Run(ctx context.Context) {
	t := time.NewTicker(roundEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		var wg sync.WaitGroup
		for _, c := range p.pick(time.Now()) {
			wg.Go(func() {
				if err := p.punch(ctx, c); err != nil && ctx.Err() == nil {
					p.log.Debug("no direct path yet", "peer", c.RemotePeer(), "err", err)
				}
			})
		}
		wg.Wait()
	}
}

// pick selects the relayed connections to try now. The dialled side tries, as the protocol requires.
func (p *Puncher) pick(now time.Time) []attempt {
	relayed := make(map[peer.ID]network.Conn)
	for _, id := range p.h.Network().Peers() {
		if conns.Direct(p.h, id) {
			continue
		}
		for _, c := range p.h.Network().ConnsToPeer(id) {
			if c.Stat().Direction == network.DirInbound && !c.IsClosed() {
				relayed[id] = c
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.due {
		if relayed[id] == nil {
			delete(p.due, id)
		}
	}
	var out []attempt
	for id, c := range relayed {
		next := p.due[id]
		if next == nil {
			p.due[id] = &turn{at: now.Add(firstPause), pause: firstPause}
			continue
		}
		if now.Before(next.at) || len(out) == triesAtOnce {
			continue
		}
		next.pause = min(next.pause*3/2, lastPause)
		// Both may have been dialled by the other: they take turns by chance.
		next.at = now.Add(next.pause*3/4 + rand.N(next.pause/2))
		next.tries++
		out = append(out, attempt{c, next.tries == 1})
	}
	return out
}

// punch dials a peer that can be dialled, which may be known only through a relay. For others it is the initiator of
// libp2p's DCUtR: both exchange their addresses over the relayed connection. Then both dial at the same time, half a
// round trip after the last message.
func (p *Puncher) punch(ctx context.Context, c attempt) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if c.first && slices.ContainsFunc(p.h.Peerstore().Addrs(c.RemotePeer()), func(a ma.Multiaddr) bool {
		return addr.ClassOf(a) == addr.Public
	}) {
		conns.Forgive(p.h, c.RemotePeer())
		ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "punch"), tryTime/4)
		err := p.h.Connect(ctx, peer.AddrInfo{ID: c.RemotePeer()})
		cancel()
		if err == nil {
			return nil
		}
	}
	// On this connection and no other: the protocol goes from the side that was dialled.
	s, err := c.NewStream(network.WithAllowLimitedConn(ctx, "punch"))
	if err != nil {
		return err
	}
	defer func() { _ = s.Reset() }()
	_ = s.SetDeadline(time.Now().Add(tryTime))
	if err := multistream.SelectProtoOrFail(holepunch.Protocol, s); err != nil {
		return err
	}
	own := p.Addrs()
	if len(own) == 0 {
		return errors.New("no public address of this peer is known")
	}
	msg := &pb.HolePunch{Type: pb.HolePunch_CONNECT.Enum()}
	for _, a := range own {
		msg.ObsAddrs = append(msg.ObsAddrs, a.Bytes())
	}
	began := time.Now()
	if _, err := protodelim.MarshalTo(s, msg); err != nil {
		return err
	}
	rd := util.NewDelimitedReader(s, maxMessage)
	defer rd.Close()
	var answer pb.HolePunch
	if err := rd.ReadMsg(&answer); err != nil {
		return err
	}
	rtt := time.Since(began)
	theirs := dialable(answer.GetObsAddrs())
	if answer.GetType() != pb.HolePunch_CONNECT || len(theirs) == 0 {
		return fmt.Errorf("the peer answered %s with %d addresses", answer.GetType(), len(theirs))
	}
	theirs = guess(theirs, p.h.Peerstore().Addrs(c.RemotePeer()))
	if _, err := protodelim.MarshalTo(s, &pb.HolePunch{Type: pb.HolePunch_SYNC.Enum()}); err != nil {
		return err
	}
	select {
	case <-time.After(rtt / 2):
	case <-ctx.Done():
		return ctx.Err()
	}
	conns.Forgive(p.h, c.RemotePeer())
	ctx = network.WithForceDirectDial(network.WithSimultaneousConnect(ctx, false, "punch"), "punch")
	return p.h.Connect(ctx, peer.AddrInfo{ID: c.RemotePeer(), Addrs: theirs})
}

// Addrs returns the addresses at which others may find this host.
func (p *Puncher) Addrs() []ma.Multiaddr {
	p.mu.Lock()
	seen := slices.Clone(p.seen)
	p.mu.Unlock()
	return guess(seen, p.h.Network().ListenAddresses())
}

// guess adds, to the addresses at which a machine was seen, the same machine at the ports that it listens on. A peer
// that is connected by QUIC alone was seen at no TCP port, and two peers that know a different transport each would
// never meet. Most routers keep the port where they can, so that the guess is a good one.
func guess(seen, listening []ma.Multiaddr) []ma.Multiaddr {
	out := slices.Clone(seen)
	for _, s := range seen {
		ip, _ := ma.SplitFirst(s)
		for _, l := range listening {
			at, rest := ma.SplitFirst(l)
			if at == nil || ip == nil || at.Protocol().Code != ip.Protocol().Code || len(rest) == 0 ||
				addr.Circuit(l) || len(out) >= 2*maxSeen {
				continue
			}
			if g := ip.Multiaddr().Encapsulate(rest); !ma.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}

// dialable returns the public ones among a peer's addresses.
func dialable(raw [][]byte) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, b := range raw {
		if a, err := ma.NewMultiaddrBytes(b); err == nil && addr.ClassOf(a) == addr.Public && len(out) < 2*maxSeen {
			out = append(out, a)
		}
	}
	return out
}
