package execnet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Timing of the connections to members of clusters. Direct paths need an existing connection (p2p's hole punching, the
// overlay's probes), so there is a connection to every member.
const (
	meetEvery = 15 * time.Second
	meetTime  = 15 * time.Second // bounds one attempt
	meetTTL   = 10 * time.Minute // of the addresses that a plan names; renewed while it is in force
)

// Join makes an execution a member of its cluster's overlay, or gives it the way out alone. It takes the TUN over.
func (n *Networks) Join(j member.Joining) (member.Network, error) {
	out, err := n.open(j)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making its way out: %w", err), j.Tun.Close())
	}
	if j.Cluster == "" {
		a, err := overlay.NewAlone(overlay.AloneConfig{Address: j.Address, Tun: j.Tun, Outside: out, Log: j.Log})
		if err != nil {
			return nil, errors.Join(err, n.close(out))
		}
		return alone{n: n, line: a, out: out}, nil
	}
	d, err := n.cfg.Host.Overlay().Join(overlay.Config{
		Key: overlay.PrivateKey(j.Key), Address: j.Address, Prefix: cluster.Prefix, Service: cluster.Service,
		Tun: j.Tun, MTU: j.MTU, Outside: out, Log: j.Log,
	})
	if err != nil {
		return nil, errors.Join(err, n.close(out))
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &membership{
		n: n, d: d, out: out, tag: "cluster-" + j.Key.Public().String(), stop: cancel,
		others: make(chan []member.Peer, 1),
	}
	m.wg.Go(func() { m.meet(ctx) })
	return m, nil
}

// alone is the network of an execution that is of no cluster.
type alone struct {
	n    *Networks
	line *overlay.Alone
	out  *egress.Stack
}

// SetMembers is for members of clusters.
func (alone) SetMembers([]member.Peer) error { return errAlone }

// Links returns none.
func (alone) Links() []member.Link { return nil }

// Close cuts the program's connections to the outside.
func (a alone) Close() error { return errors.Join(a.line.Close(), a.n.close(a.out)) }

var errAlone = errors.New("the execution is of no cluster")

// membership is one execution's part in its cluster.
type membership struct {
	n    *Networks
	d    *overlay.Device
	out  *egress.Stack
	tag  string // under which connections to the other members are kept
	stop context.CancelFunc
	wg   sync.WaitGroup
	// others holds the newest members until meet takes them.
	others chan []member.Peer
}

// SetMembers admits the others and removes all other members.
func (m *membership) SetMembers(others []member.Peer) error {
	list := make([]overlay.Member, 0, len(others))
	for _, p := range others {
		list = append(list, overlay.Member{Key: overlay.PublicKey(p.Key), Peer: p.Peer, Address: p.Address})
	}
	m.remember(others) // before the first packet needs a path
	if err := m.d.SetMembers(list); err != nil {
		return err
	}
	select {
	case <-m.others:
	default:
	}
	m.others <- others // one at a time sets members: there is room
	return nil
}

func (m *membership) remember(others []member.Peer) {
	for _, p := range others {
		m.n.cfg.Host.Peerstore().AddAddrs(p.Peer, p.Addrs, meetTTL)
	}
}

// meet keeps connections to the other members' peers until ctx ends, and keeps them from being trimmed.
func (m *membership) meet(ctx context.Context) {
	h := m.n.cfg.Host
	var now []member.Peer
	kept := map[peer.ID]bool{}
	defer func() {
		for id := range kept {
			h.Unprotect(id, m.tag)
		}
	}()
	t := time.NewTicker(meetEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now = <-m.others:
		case <-t.C:
		}
		m.remember(now)
		want := map[peer.ID]bool{}
		var dials sync.WaitGroup
		for _, p := range now {
			if p.Peer == h.ID() || want[p.Peer] {
				continue
			}
			want[p.Peer] = true
			h.Protect(p.Peer, m.tag)
			if h.Network().Connectedness(p.Peer) == network.NotConnected {
				dials.Go(func() { m.dial(ctx, p) })
			}
		}
		for id := range kept {
			if !want[id] {
				h.Unprotect(id, m.tag)
			}
		}
		kept = want
		dials.Wait()
	}
}

// dial connects to a member's peer.
func (m *membership) dial(ctx context.Context, p member.Peer) {
	ctx, cancel := context.WithTimeout(network.WithAllowLimitedConn(ctx, "cluster"), meetTime)
	defer cancel()
	if err := m.n.cfg.Host.Connect(ctx, peer.AddrInfo{ID: p.Peer, Addrs: p.Addrs}); err != nil && ctx.Err() == nil {
		m.n.cfg.Log.Debug("a member's peer is not reached", "peer", p.Peer, "err", err)
	}
}

// Links returns the paths to the others.
func (m *membership) Links() []member.Link {
	var out []member.Link
	for _, s := range m.d.Members() {
		out = append(out, member.Link{
			Address: s.Address, Path: paths[s.Path], RTT: s.RTT, MTU: s.MTU, Rx: s.Rx, Tx: s.Tx, Handshake: s.Handshake,
		})
	}
	return out
}

var paths = map[overlay.Path]nodepb.LinkPath{
	overlay.PathDirect:  nodepb.LinkPath_LINK_PATH_DIRECT,
	overlay.PathRelayed: nodepb.LinkPath_LINK_PATH_RELAYED,
}

// Close leaves the cluster: it first stops traffic from members, and then cuts the program's connections to the
// outside.
func (m *membership) Close() error {
	m.stop()
	m.wg.Wait()
	return errors.Join(m.d.Close(), m.n.close(m.out))
}
