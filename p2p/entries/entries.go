// Package entries keeps a host outside of the network reachable through a few entry peers. It holds one connection and
// one reservation at each. All other connections, in and out, are circuits through them (circuit relay v2).
//
//	light host ──── entry ═══ circuit ═══ any peer
//	          └──── standby entry
package entries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/peermap"
)

const (
	// enterTimeout bounds connecting to an entry and reserving a place there.
	enterTimeout = 10 * time.Second
	// dialTimeout bounds a dial of another peer beside the circuit to it.
	dialTimeout = 10 * time.Second
	// maxAddrs is the number of announced addresses of one entry: those of two entries fit into an order.
	maxAddrs = 3
	// renewBefore is how long before its end a reservation is renewed.
	renewBefore = dialTimeout + time.Minute
	// directAgain is how long a peer that is connected through an entry is not dialled again.
	directAgain = 15 * time.Second
	// maxPatience is for an entry that is slow, or the only one.
	maxPatience = 10 * time.Second
)

var (
	// ErrNoEntry: the host is connected to no entry peer at the moment.
	ErrNoEntry = errors.New("no entry peer is connected")
	// ErrNoRelay: an entry does not carry circuits, so that other peers cannot be reached through it.
	ErrNoRelay = errors.New("entry peer: not a relay, or full")
	// ErrSmallRelay: the circuit is limited to little data, and files are not sent over it.
	ErrSmallRelay = errors.New("the entry peer's relay carries messages only, no files; use another entry peer")
)

// Diagnose explains the error of dialling a peer; it returns nil if it has no better explanation.
type Diagnose func(peer.ID, error) error

// Set is the entries of one host.
type Set struct {
	dials    bool // also others than entries
	log      *slog.Logger
	inner    host.Host // the host behind the one of Attach
	diagnose Diagnose
	emitter  event.Emitter

	tried    peermap.Map[time.Time] // when peers with a circuit were dialled
	widening sync.WaitGroup         // such dials
	life     context.Context        // of the host
	end      context.CancelFunc

	mu    sync.Mutex
	doors []*door // in the order in which they were entered
}

// door is one entry.
type door struct {
	id    peer.ID
	open  int            // running calls of Enter: it may be dialled
	live  bool           // connected, and a place is reserved
	lost  chan struct{}  // closed when its connection is
	addrs []ma.Multiaddr // where others reach this host through it
	until time.Time      // the end of the reservation
	data  uint64         // bytes that one circuit carries; 0: no limit is known
}

// New returns an empty set. With dials other peers are also dialled by their own addresses, which is faster for bulk
// where it works; where it does not, the entries' circuits stay. The libp2p host is made with [Set.Gate] and
// [Set.Addrs]; Attach must follow.
func New(dials bool, log *slog.Logger) *Set {
	s := &Set{dials: dials, log: log}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Attach takes the libp2p host, which listens nowhere. It returns the host to use instead, which sends everything that
// is not for an entry through a circuit.
func (s *Set) Attach(inner host.Host, diagnose Diagnose) (host.Host, error) {
	s.inner, s.diagnose = inner, diagnose
	var err error
	s.emitter, err = inner.EventBus().Emitter(new(event.EvtAutoRelayAddrsUpdated), eventbus.Stateful)
	if err != nil {
		return nil, err
	}
	inner.Network().Notify(&network.NotifyBundle{DisconnectedF: func(_ network.Network, c network.Conn) {
		s.disconnected(c.RemotePeer())
	}})
	return lightHost{Host: inner, s: s}, nil
}

// Stop ends the dials of other peers. The owner closes the host afterwards.
func (s *Set) Stop() {
	s.mu.Lock()
	s.end() // no more dials
	s.mu.Unlock()
	s.widening.Wait()
}

// Enter connects to an entry and reserves a place there, so that other peers reach this host through it. Entering where
// it is entered already renews the reservation. The errors are ErrNoRelay and those of [Diagnose].
func (s *Set) Enter(ctx context.Context, e peer.AddrInfo) error {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	s.mu.Lock()
	d := s.door(e.ID)
	if d == nil {
		d = &door{id: e.ID, lost: make(chan struct{})}
		s.doors = append(s.doors, d)
	}
	live := d.live
	d.open++
	s.mu.Unlock()
	r, err := s.reserve(ctx, e)
	s.mu.Lock()
	d.open--
	if err == nil {
		d.live, d.until, d.data, d.addrs = true, r.Expiration, r.LimitData,
			circuits(e.ID, r.Addrs, s.inner.Peerstore().Addrs(e.ID))
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		s.inner.ConnManager().Protect(e.ID, "entry")
		if !conns.Direct(s.inner, e.ID) { // lost again before it was marked
			s.disconnected(e.ID)
		}
		s.announce()
	case !live:
		s.Leave(e.ID)
	}
	return err
}

func (s *Set) reserve(ctx context.Context, e peer.AddrInfo) (*client.Reservation, error) {
	conns.Forgive(s.inner, e.ID)
	if err := s.inner.Connect(network.WithForceDirectDial(ctx, "entry"), e); err != nil {
		if why := s.diagnose(e.ID, err); why != nil {
			return nil, why
		}
		return nil, fmt.Errorf("connecting to entry %s: %w", e.ID, err)
	}
	r, err := client.Reserve(ctx, s.inner, peer.AddrInfo{ID: e.ID})
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w: %w", e.ID, ErrNoRelay, err)
	}
	return r, nil
}

// disconnected removes an entry after its connection closed, before a circuit is requested from it.
func (s *Set) disconnected(id peer.ID) {
	if conns.Direct(s.inner, id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.door(id); d != nil && d.live {
		d.live = false
		close(d.lost)
		d.lost = make(chan struct{})
	}
}

// circuits returns the addresses of a host with a place at e: through the addresses that e vouches for, or else e's
// known addresses. The last one has only e's ID, for peers that are connected to e.
func circuits(e peer.ID, vouched, known []ma.Multiaddr) []ma.Multiaddr {
	tail := circuitVia(e)
	name, _ := ma.SplitLast(tail)
	var out []ma.Multiaddr
	for _, a := range slices.Concat(vouched, known) {
		if addr.Circuit(a) || len(out) >= maxAddrs {
			continue
		}
		if !addr.Has(a, ma.P_P2P) {
			a = a.Encapsulate(name)
		}
		a = a.Encapsulate(ma.StringCast("/p2p-circuit"))
		if !ma.Contains(out, a) {
			out = append(out, a)
		}
	}
	return append(out, tail)
}

// circuitVia is the address of any peer through e, for peers connected to e.
func circuitVia(e peer.ID) ma.Multiaddr { return ma.StringCast("/p2p/" + e.String() + "/p2p-circuit") }

// announce sends this peer's changed addresses to every connected peer.
func (s *Set) announce() {
	_ = s.emitter.Emit(event.EvtAutoRelayAddrsUpdated{RelayAddrs: s.Addrs()}) // fails only when closed
}

// Leave gives an entry up: its connection is closed, and with it every circuit that it carries. Circuits to it through
// another entry stay.
func (s *Set) Leave(id peer.ID) {
	s.mu.Lock()
	s.doors = slices.DeleteFunc(s.doors, func(d *door) bool { return d.id == id })
	s.mu.Unlock()
	s.inner.ConnManager().Unprotect(id, "entry")
	for _, c := range s.inner.Network().Conns() {
		if relayed := conns.Relayed(c); !relayed && c.RemotePeer() == id || relayed && !s.carries(c.RemoteMultiaddr()) {
			_ = c.Close()
		}
	}
	s.announce()
}

// Keep pings an entry until it does not answer for patience or its connection closes, and renews the reservation there.
// The timeout of a slow entry is four times its last round trip. The timeout of the only entry is maxPatience, since
// leaving it would only cut its circuits. Keep returns the reason to leave the entry; nil if ctx ended.
func (s *Set) Keep(ctx context.Context, id peer.ID, every, patience time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	answered, took := time.Now(), time.Duration(0) // by the last answer
	for {
		s.mu.Lock()
		d := s.door(id)
		if d == nil || !d.live {
			s.mu.Unlock()
			return fmt.Errorf("entry %s closed the connection", id)
		}
		lost, renew := d.lost, time.Until(d.until) < renewBefore
		s.mu.Unlock()
		began := time.Now() // a ping after a failed one has a longer timeout
		switch wait := max(patience, 4*took, began.Sub(answered)); {
		case s.alive(ctx, id, min(wait, maxPatience)):
			answered, took = time.Now(), time.Since(began)
		case ctx.Err() == nil && (len(s.Entries()) > 1 || time.Since(answered) > maxPatience):
			return fmt.Errorf("entry %s has not answered for %v", id, time.Since(answered).Round(time.Millisecond))
		}
		if renew {
			if err := s.Enter(ctx, peer.AddrInfo{ID: id}); err != nil && ctx.Err() == nil {
				return fmt.Errorf("renewing the place at entry %s: %w", id, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
		case <-t.C:
		}
	}
}

// alive reports whether an entry answers a ping over its own connection.
func (s *Set) alive(ctx context.Context, id peer.ID, patience time.Duration) bool {
	return slices.ContainsFunc(s.inner.Network().ConnsToPeer(id), func(c network.Conn) bool {
		return !conns.Relayed(c) && conns.Answers(ctx, c, patience)
	})
}

// Entries are the entries that can be used now, in the order in which they were entered.
func (s *Set) Entries() []peer.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []peer.ID
	for _, d := range s.doors {
		if d.live {
			out = append(out, d.id)
		}
	}
	return out
}

// CircuitData is the number of bytes that a circuit at the entry carries before it is cut; 0 means that no limit is
// known.
func (s *Set) CircuitData(id peer.ID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.door(id); d != nil {
		return d.data
	}
	return 0
}

// Dials reports whether the host dials others than its entries too.
func (s *Set) Dials() bool { return s.dials }

// door finds an entry; s.mu is held.
func (s *Set) door(id peer.ID) *door {
	if i := slices.IndexFunc(s.doors, func(d *door) bool { return d.id == id }); i >= 0 {
		return s.doors[i]
	}
	return nil
}

// Addrs are where others reach this host through its entries now.
func (s *Set) Addrs() []ma.Multiaddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ma.Multiaddr
	for _, d := range s.doors {
		if d.live {
			out = append(out, d.addrs...)
		}
	}
	return out
}
