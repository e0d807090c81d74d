package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/util"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch/pb"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
	"google.golang.org/protobuf/encoding/protodelim"
)

// libp2p punches a hole once, when a relayed connection is opened. A path may open later: a router was restarted, a
// firewall's rule went, the addresses that others see were not known yet. So relayed connections are tried again.
const (
	// punchFirst is how long after a relayed connection was opened it is tried again; the pause grows by half up to
	// punchMost.
	punchFirst = 10 * time.Second
	punchMost  = 15 * time.Minute
	// punchEvery is how often it is looked which connections are due.
	punchEvery = 5 * time.Second
	// punchTime bounds one attempt.
	punchTime = 10 * time.Second
	// punchAtOnce bounds the attempts of one round.
	punchAtOnce = 8
	// maxPunchMessage bounds one message of the protocol, as in libp2p.
	maxPunchMessage = 4 << 10
	// maxSeen is how many addresses are remembered at which others see us.
	maxSeen = 8
)

// puncher tries again to turn relayed connections into direct ones.
type puncher struct {
	h *Host

	mu   sync.Mutex
	seen []ma.Multiaddr         // public addresses at which others see us, latest last
	due  map[peer.ID]*punchTurn // relayed peers
}

type punchTurn struct {
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

func newPuncher(h *Host) *puncher { return &puncher{h: h, due: make(map[peer.ID]*punchTurn)} }

// observed notes at which address a peer sees us.
func (p *puncher) observed(c network.Conn, at ma.Multiaddr) {
	if at == nil || has(c.RemoteMultiaddr(), ma.P_CIRCUIT) || ClassOf(at) != ClassPublic {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = slices.DeleteFunc(p.seen, at.Equal)
	p.seen = append(p.seen, at)
	p.seen = p.seen[max(0, len(p.seen)-maxSeen):]
}

// run tries until ctx ends.
func (p *puncher) run(ctx context.Context) {
	t := time.NewTicker(punchEvery)
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
					p.h.log.Debug("no direct path yet", "peer", c.RemotePeer(), "err", err)
				}
			})
		}
		wg.Wait()
	}
}

// pick selects the relayed connections to try now. The dialled side tries, as the protocol requires.
func (p *puncher) pick(now time.Time) []attempt {
	relayed := make(map[peer.ID]network.Conn)
	for _, id := range p.h.Network().Peers() {
		if p.h.direct(id) {
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
		turn := p.due[id]
		if turn == nil {
			p.due[id] = &punchTurn{at: now.Add(punchFirst), pause: punchFirst}
			continue
		}
		if now.Before(turn.at) || len(out) == punchAtOnce {
			continue
		}
		turn.pause = min(turn.pause*3/2, punchMost)
		// Both may have been dialled by the other: they take turns by chance.
		turn.at = now.Add(turn.pause*3/4 + rand.N(turn.pause/2))
		turn.tries++
		out = append(out, attempt{c, turn.tries == 1})
	}
	return out
}

// punch dials a peer that can be dialled, which may be known only through a relay. For others it is the asking side of
// libp2p's DCUtR: both exchange their addresses over the relayed connection. Then both dial at the same time, half a
// round trip after the last message.
func (p *puncher) punch(ctx context.Context, c attempt) error {
	ctx, cancel := context.WithTimeout(ctx, punchTime)
	defer cancel()
	if c.first && slices.ContainsFunc(p.h.Peerstore().Addrs(c.RemotePeer()), func(a ma.Multiaddr) bool {
		return ClassOf(a) == ClassPublic
	}) {
		p.h.Forgive(c.RemotePeer())
		ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "punch"), punchTime/4)
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
	_ = s.SetDeadline(time.Now().Add(punchTime))
	if err := multistream.SelectProtoOrFail(holepunch.Protocol, s); err != nil {
		return err
	}
	own := p.addrs()
	if len(own) == 0 {
		return errors.New("nobody has seen a public address of this peer")
	}
	msg := &pb.HolePunch{Type: pb.HolePunch_CONNECT.Enum()}
	for _, a := range own {
		msg.ObsAddrs = append(msg.ObsAddrs, a.Bytes())
	}
	began := time.Now()
	if _, err := protodelim.MarshalTo(s, msg); err != nil {
		return err
	}
	rd := util.NewDelimitedReader(s, maxPunchMessage)
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
	p.h.Forgive(c.RemotePeer())
	ctx = network.WithForceDirectDial(network.WithSimultaneousConnect(ctx, false, "punch"), "punch")
	return p.h.Connect(ctx, peer.AddrInfo{ID: c.RemotePeer(), Addrs: theirs})
}

// addrs are where others may find us.
func (p *puncher) addrs() []ma.Multiaddr {
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
				has(l, ma.P_CIRCUIT) || len(out) >= 2*maxSeen {
				continue
			}
			if g := ip.Multiaddr().Encapsulate(rest); !ma.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}

// dialable are the public addresses among those that a peer sent.
func dialable(raw [][]byte) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, b := range raw {
		if a, err := ma.NewMultiaddrBytes(b); err == nil && ClassOf(a) == ClassPublic && len(out) < 2*maxSeen {
			out = append(out, a)
		}
	}
	return out
}
