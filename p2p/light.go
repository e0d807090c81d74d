package p2p

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/starling-network/starling/p2p/admit"
)

// AnyNetwork is the network name of a host that does not know yet which network it is on. Hosts of every network bear
// with it, and it speaks none of their protocols but those under this name.
const AnyNetwork = "any"

// Limits of a light host.
const (
	// lightLow and lightHigh are the connections kept and those at which trimming begins: circuits cost their relay.
	lightLow, lightHigh = 16, 32
	// lightGrace is how long a new circuit is safe from trimming: asking for a quote takes less.
	lightGrace = 5 * time.Second
	// enterTimeout bounds connecting to an entry and reserving a place there.
	enterTimeout = 10 * time.Second
	// maxTold is the number of announced addresses of one entry: those of two entries fit into an order.
	maxTold = 3
)

// Light is a host that is no part of the network: it listens nowhere, keeps one connection to each of a few entry
// peers and dials nobody else. Every other peer it reaches, and is reached by, through circuits at its entries
// (circuit relay v2). Both ends run their own handshake inside, so that an entry carries bytes which it cannot read.
//
//	light host ──── entry ═══ circuit ═══ any peer
//	          └──── standby entry
type Light struct {
	*Host
	inner   host.Host // the host behind lightHost
	dials   bool      // also others than entries
	named   *dials    // where they are dialled
	emitter event.Emitter

	tried    notebook[time.Time] // when peers with a circuit were dialled
	widening sync.WaitGroup      // such dials
	life     context.Context     // of the host
	end      context.CancelFunc

	mu    sync.Mutex
	doors []*door // in the order in which they were entered
}

// door is one entry.
type door struct {
	id    peer.ID
	open  int            // calls of Enter under way: it may be dialled
	live  bool           // connected, and a place is reserved
	lost  chan struct{}  // closed when its connection is
	told  []ma.Multiaddr // where others reach this host through it
	until time.Time      // the end of the reservation
	data  uint64         // bytes that one circuit carries; 0: no limit is known
}

// directAgain is how long a peer that is connected through an entry is not dialled again.
const directAgain = 15 * time.Second

// NewLight makes a light host. Of cfg Key, Network, PSK, Agent, Logger and Transport are used, and Listen with
// Transport alone: a simulated link needs an address. With dials it also dials other peers by their own addresses,
// which is faster for bulk where it works; where it does not, the entries' circuits stay.
func NewLight(cfg Config, dials bool) (*Light, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Light{dials: dials, named: cfg.dials()}
	l.life, l.end = context.WithCancel(context.Background())
	standings := admit.NewStandings()
	opts, err := l.options(cfg, standings)
	if err != nil {
		return nil, err
	}
	if l.inner, err = libp2p.New(opts...); err != nil {
		return nil, fmt.Errorf("starting light libp2p host: %w", err)
	}
	l.emitter, err = l.inner.EventBus().Emitter(new(event.EvtAutoRelayAddrsUpdated), eventbus.Stateful)
	if err == nil {
		l.Host, err = wrap(lightHost{Host: l.inner, l: l},
			Config{Network: cfg.Network, PSK: cfg.PSK, Logger: cfg.Logger}, standings)
	}
	if err != nil {
		l.inner.Close()
		return nil, fmt.Errorf("starting light libp2p host: %w", err)
	}
	l.inner.Network().Notify(&network.NotifyBundle{DisconnectedF: func(_ network.Network, c network.Conn) {
		l.disconnected(c.RemotePeer())
	}})
	if cfg.Network != AnyNetwork {
		l.handshake = handshake(cfg.Network)
	}
	return l, nil
}

func (l *Light) options(cfg Config, standings *admit.Standings) ([]libp2p.Option, error) {
	conns, err := connmgr.NewConnManager(lightLow, lightHigh, connmgr.WithGracePeriod(lightGrace))
	if err != nil {
		return nil, fmt.Errorf("making connection manager: %w", err)
	}
	limits, err := resources(standings)
	if err != nil {
		return nil, err
	}
	opts := []libp2p.Option{
		libp2p.Identity(cfg.Key),
		libp2p.ProtocolVersion(handshake(cfg.Network)),
		libp2p.UserAgent(cfg.Agent),
		libp2p.ConnectionManager(conns),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionGater(lightGater{gater: cfg.gater(l.named), l: l}),
		libp2p.AddrsFactory(func([]ma.Multiaddr) []ma.Multiaddr { return l.addrs() }),
		libp2p.SwarmOpts(swarm.WithDialRanker(tcpFirst)),
		libp2p.WithDialTimeout(DialTimeout),
		libp2p.DisableMetrics(),
		libp2p.NoListenAddrs, libp2p.EnableRelay(),
	}
	if cfg.Transport != nil {
		return append(opts, cfg.Transport, libp2p.DisableIdentifyAddressDiscovery(),
			libp2p.ListenAddrStrings(cfg.Listen...)), nil
	}
	if cfg.PSK != nil {
		opts = append(opts, libp2p.PrivateNetwork(cfg.PSK[:]))
	} else {
		opts = append(opts, libp2p.Transport(libp2pquic.NewTransport))
	}
	return append(opts,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Security(noise.ID, noise.New)), nil
}

// Enter connects to an entry and reserves a place there, so that other peers reach this host through it. Entering where
// it is entered already renews the reservation. The errors are ErrNoRelay and a *Diagnosis.
func (l *Light) Enter(ctx context.Context, e peer.AddrInfo) error {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	l.mu.Lock()
	l.named.name(e.Addrs...)
	d := l.door(e.ID)
	if d == nil {
		d = &door{id: e.ID, lost: make(chan struct{})}
		l.doors = append(l.doors, d)
	}
	live := d.live
	d.open++
	l.mu.Unlock()
	r, err := l.enter(ctx, e)
	l.mu.Lock()
	d.open--
	if err == nil {
		d.live, d.until, d.data, d.told = true, r.Expiration, r.LimitData,
			circuits(e.ID, r.Addrs, l.inner.Peerstore().Addrs(e.ID))
	}
	l.mu.Unlock()
	switch {
	case err == nil:
		l.inner.ConnManager().Protect(e.ID, "entry")
		if !l.connected(e.ID) { // lost again before it was marked
			l.disconnected(e.ID)
		}
		l.announce()
	case !live:
		l.Leave(e.ID)
	}
	return err
}

func (l *Light) enter(ctx context.Context, e peer.AddrInfo) (*client.Reservation, error) {
	l.Forgive(e.ID)
	if err := l.inner.Connect(network.WithForceDirectDial(ctx, "entry"), e); err != nil {
		if d := l.Diagnose(e.ID, err); d != nil {
			return nil, d
		}
		return nil, fmt.Errorf("connecting to entry %s: %w", e.ID, err)
	}
	r, err := client.Reserve(ctx, l.inner, peer.AddrInfo{ID: e.ID})
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w: %w", e.ID, ErrNoRelay, err)
	}
	return r, nil
}

// connected reports whether there is a connection to an entry that is no circuit.
func (l *Light) connected(id peer.ID) bool {
	return slices.ContainsFunc(l.inner.Network().ConnsToPeer(id), direct)
}

func direct(c network.Conn) bool { return !has(c.RemoteMultiaddr(), ma.P_CIRCUIT) }

// disconnected stops using an entry after its connection closed, before anybody requests a circuit from it.
func (l *Light) disconnected(id peer.ID) {
	if l.connected(id) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.door(id); d != nil && d.live {
		d.live = false
		close(d.lost)
		d.lost = make(chan struct{})
	}
}

// circuits are the addresses at which others reach a host with a place at e: those that e vouches for, else those at
// which we know it, and last its name alone, for peers that are connected to it.
func circuits(e peer.ID, vouched, known []ma.Multiaddr) []ma.Multiaddr {
	tail := circuitVia(e)
	name, _ := ma.SplitLast(tail)
	var out []ma.Multiaddr
	for _, a := range slices.Concat(vouched, known) {
		if has(a, ma.P_CIRCUIT) || len(out) >= maxTold {
			continue
		}
		if !has(a, ma.P_P2P) {
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
func (l *Light) announce() {
	_ = l.emitter.Emit(event.EvtAutoRelayAddrsUpdated{RelayAddrs: l.addrs()}) // fails only when closed
}

// Leave gives an entry up: its connection is closed, and with it every circuit that it carries. Circuits to it through
// another entry stay.
func (l *Light) Leave(id peer.ID) {
	l.mu.Lock()
	l.doors = slices.DeleteFunc(l.doors, func(d *door) bool { return d.id == id })
	l.mu.Unlock()
	l.inner.ConnManager().Unprotect(id, "entry")
	for _, c := range l.inner.Network().Conns() {
		if direct(c) && c.RemotePeer() == id || !direct(c) && !(lightGater{l: l}).carries(c.RemoteMultiaddr()) {
			_ = c.Close()
		}
	}
	l.announce()
}

const maxPatience = 10 * time.Second // with an entry that is slow, or the only one

// Keep pings an entry until it does not answer for patience or its connection closes, and renews the reservation there.
// A slow entry has four times as long as its last answer took, and the only one maxPatience: leaving it would cut what
// goes through it and help nobody. Keep returns why the caller has to leave the entry; nil when ctx ended.
func (l *Light) Keep(ctx context.Context, id peer.ID, every, patience time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	answered, took := time.Now(), time.Duration(0) // by the last answer
	for {
		l.mu.Lock()
		d := l.door(id)
		if d == nil || !d.live {
			l.mu.Unlock()
			return fmt.Errorf("entry %s closed the connection", id)
		}
		lost, renew := d.lost, time.Until(d.until) < DialTimeout+time.Minute
		l.mu.Unlock()
		began := time.Now() // a ping after one that failed has longer
		switch wait := max(patience, 4*took, began.Sub(answered)); {
		case l.alive(ctx, id, min(wait, maxPatience)):
			answered, took = time.Now(), time.Since(began)
		case ctx.Err() == nil && (len(l.Entries()) > 1 || time.Since(answered) > maxPatience):
			return fmt.Errorf("entry %s has not answered for %v", id, time.Since(answered).Round(time.Millisecond))
		}
		if renew {
			if err := l.Enter(ctx, peer.AddrInfo{ID: id}); err != nil && ctx.Err() == nil {
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
func (l *Light) alive(ctx context.Context, id peer.ID, patience time.Duration) bool {
	return slices.ContainsFunc(l.inner.Network().ConnsToPeer(id), func(c network.Conn) bool {
		return direct(c) && answers(ctx, c, patience)
	})
}

// Entries are the entries that can be used now, in the order in which they were entered.
func (l *Light) Entries() []peer.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []peer.ID
	for _, d := range l.doors {
		if d.live {
			out = append(out, d.id)
		}
	}
	return out
}

// CircuitData is the number of bytes that a circuit at the entry carries before it is cut; 0 means that no limit is
// known.
func (l *Light) CircuitData(id peer.ID) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.door(id); d != nil {
		return d.data
	}
	return 0
}

// Dials reports whether the host dials others than its entries too.
func (l *Light) Dials() bool { return l.dials }

// door finds an entry; l.mu is held.
func (l *Light) door(id peer.ID) *door {
	if i := slices.IndexFunc(l.doors, func(d *door) bool { return d.id == id }); i >= 0 {
		return l.doors[i]
	}
	return nil
}

// addrs are where others reach this host now.
func (l *Light) addrs() []ma.Multiaddr {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []ma.Multiaddr
	for _, d := range l.doors {
		if d.live {
			out = append(out, d.told...)
		}
	}
	return out
}

// Close closes the host and all its connections.
func (l *Light) Close() error {
	l.mu.Lock()
	l.end() // nothing more is dialled
	l.mu.Unlock()
	l.widening.Wait()
	return admit.Close(l.Host)
}
