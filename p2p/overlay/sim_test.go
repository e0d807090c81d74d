package overlay

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// world is a network in a synctest bubble: two peers, each perhaps behind a router, and a relayed stream between them. Only the
// probing is real; datagrams, routers and the stream are made here. Time is the bubble's.
type world struct {
	t     *testing.T
	peers [2]*simPeer

	mu       sync.Mutex // guards all that follows, and of the peers what is not the overlay's
	rng      *rand.Rand
	way      func(from, to netip.AddrPort) time.Duration // how long a datagram takes
	lost     float64                                     // part of the datagrams that is
	cut      bool                                        // all are
	silent   bool                                        // nobody answers data
	datagram int
	watch    func(to netip.AddrPort) // sees each datagram; nil: nobody
}

// simPeer is a peer with one device, whose only other member is on the other.
type simPeer struct {
	w     *world
	d     *Device
	m     *member
	port  *simPort
	other *simPeer

	also    []*simPort                // further ports, to which the first of the other sends as well
	knows   []ma.Multiaddr            // of the other, from its peerstore
	seen    []netip.AddrPort          // where others see it
	router  netip.Addr                // its outside; not valid: none
	mapped  uint16                    // the router's port for it; 0: another for everybody it sends to
	mapping map[netip.AddrPort]uint16 // of a router of that kind
	opened  map[netip.AddrPort]time.Time
	gap     time.Duration
	last    time.Time // when some last came
}

// routerLife is how long a router lets answers in.
const routerLife = 30 * time.Second

type simPort struct {
	p  *simPeer
	at netip.AddrPort
}

func (s *simPort) Share()                {}
func (s *simPort) Fits(netip.Addr) bool  { return true }
func (s *simPort) Local() netip.AddrPort { return s.at }
func (s *simPort) Send(packets [][]byte, to netip.AddrPort) error {
	for _, b := range packets {
		s.p.w.carry(s, append([]byte(nil), b...), to)
	}
	return nil
}

// carry brings a datagram through the routers.
func (w *world) carry(at *simPort, b []byte, to netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.datagram++
	if w.watch != nil {
		w.watch(to)
	}
	if w.cut || w.rng.Float64() < w.lost {
		return
	}
	from, src := at.p, at.at
	home := from.router == from.other.router && to == from.other.port.at
	if from.router.IsValid() && !home {
		port := from.mapped
		if port == 0 {
			if from.mapping == nil {
				from.mapping = make(map[netip.AddrPort]uint16)
			}
			if from.mapping[to] == 0 {
				from.mapping[to] = 50000 + uint16(len(from.mapping))
			}
			port = from.mapping[to]
		}
		src = netip.AddrPortFrom(from.router, port)
		from.opened[to] = time.Now()
	}
	time.AfterFunc(w.way(src, to), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		p := from.other
		for _, port := range p.also {
			if port.at == to {
				p.receive(b, route{port, src})
				return
			}
		}
		switch {
		case to == p.port.at && (home || !p.router.IsValid()):
		case p.router.IsValid() && to.Addr() == p.router && time.Since(p.opened[src]) < routerLife && p.opened[src] != time.Time{} &&
			(p.mapped == to.Port() || p.mapping[src] == to.Port() && p.mapped == 0):
		default:
			return
		}
		p.receive(b, route{p.port, src})
	})
}

// set changes the world, or looks at it.
func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (p *simPeer) receive(b []byte, from route) {
	if b[0] == wire.Data {
		if now := time.Now(); !p.w.silent {
			p.m.probing.heard.Store(now.UnixNano())
		}
		p.gap = max(p.gap, time.Since(p.last))
		p.last = time.Now()
		return
	}
	p.d.heard(b, p.m, from)
}

// fakes of what the probing asks of libp2p.
type (
	simHost struct {
		host.Host
		p *simPeer
	}
	simNetwork struct{ network.Network }
	simBook    struct {
		peerstore.Peerstore
		p *simPeer
	}
)

func (h simHost) ID() peer.ID                                        { return peer.ID(fmt.Sprint(h.p.port.at)) }
func (h simHost) Network() network.Network                           { return simNetwork{} }
func (h simHost) Peerstore() peerstore.Peerstore                     { return simBook{p: h.p} }
func (simNetwork) ConnsToPeer(peer.ID) []network.Conn                { return nil }
func (simNetwork) InterfaceListenAddresses() ([]ma.Multiaddr, error) { return nil, nil }
func (b simBook) Addrs(peer.ID) (out []ma.Multiaddr) {
	b.p.w.set(func() { out = slices.Clone(b.p.knows) })
	return out
}

func quicAddr(a netip.AddrPort) ma.Multiaddr {
	family := "ip4"
	if a.Addr().Is6() {
		family = "ip6"
	}
	return ma.StringCast(fmt.Sprintf("/%s/%s/udp/%d/quic-v1", family, a.Addr(), a.Port()))
}

// newWorld makes a world whose relayed stream takes 40 ms each way. Call meet when the peers are as the test wants them.
func newWorld(t *testing.T, a, b netip.AddrPort) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 2)), way: func(_, _ netip.AddrPort) time.Duration { return 10 * time.Millisecond }}
	first, second := members(t)
	for i, at := range []netip.AddrPort{a, b} {
		p := &simPeer{w: w, opened: make(map[netip.AddrPort]time.Time), m: []*member{first, second}[i]}
		p.port = &simPort{p, at}
		n := New("sim", slog.New(slog.DiscardHandler))
		n.h, n.ports = simHost{p: p}, []port.Port{p.port}
		n.seen = func() (out []ma.Multiaddr) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, a := range p.seen {
				out = append(out, quicAddr(a))
			}
			return out
		}
		p.d = &Device{n: n, log: n.log, inbox: turns.NewInbox[sentBy](&n.stats.dropped[dropBusy]), probes: make(chan probe, probeQueue), poke: make(chan struct{}, 1)}
		p.d.ctx, p.d.cancel = context.WithCancel(t.Context())
		p.m.d = p.d
		p.m.Address = netip.AddrFrom4([4]byte{10, 77, 0, byte(3 - i)})
		p.m.mtu.Store(wire.MinMTU)
		p.m.out = newCarrier(p.m)
		p.m.out.running = true // its stream is run's
		p.d.byAddr.Store(&map[netip.Addr]*member{p.m.Address: p.m})
		n.list.Store(&[]*Device{p.d})
		w.peers[i] = p
	}
	w.peers[0].other, w.peers[1].other = w.peers[1], w.peers[0]
	return w
}

// meet starts the peers, with what the stream carries and data each way ten times a second, until the test ends.
func (w *world) meet() {
	for _, p := range w.peers {
		p.d.tasks.Go(p.d.probe)
		p.last = time.Now()
		p.d.tasks.Go(func() {
			for {
				select {
				case <-p.d.ctx.Done():
					return
				case b := <-p.m.out.packets:
					data := append([]byte(nil), b.B[:b.N]...)
					b.Release()
					time.AfterFunc(40*time.Millisecond, func() { w.set(func() { p.other.receive(data, route{}) }) })
				}
			}
		})
		p.d.tasks.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-p.d.ctx.Done():
					return
				case <-tick.C:
				}
				b := datagram(wire.Data, 100)
				p.m.wake()
				if r := p.m.direct.Load(); r != nil {
					_ = r.port.Send([][]byte{b}, r.to)
				} else {
					p.m.out.queue([][]byte{b})
				}
			}
		})
		p.m.hurry()
	}
}

// sent is how many datagrams were.
func (w *world) sent() (n int) {
	w.set(func() { n = w.datagram })
	return n
}

// longest is the longest time in which nothing came.
func (p *simPeer) longest() (gap time.Duration) {
	p.w.set(func() { gap = p.gap })
	return gap
}

func (w *world) end() {
	for _, p := range w.peers {
		p.d.cancel()
		p.d.tasks.Wait()
	}
	synctest.Wait()
}

// until waits until ok, for at most the given time, and says how long it was.
func (w *world) until(most time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		synctest.Wait()
		if ok() {
			return time.Since(began)
		}
		if time.Since(began) > most {
			w.t.Fatalf("not within %s: %s", most, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) direct() bool {
	return w.peers[0].m.direct.Load() != nil && w.peers[1].m.direct.Load() != nil
}

func (w *world) relayed() bool {
	return w.peers[0].m.direct.Load() == nil && w.peers[1].m.direct.Load() == nil
}

// at is where each sends to.
func (w *world) at() (a, b netip.AddrPort) {
	if r := w.peers[0].m.direct.Load(); r != nil {
		a = r.to
	}
	if r := w.peers[1].m.direct.Load(); r != nil {
		b = r.to
	}
	return a, b
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// TestAttackCalledAddresses: a member of a cluster that calls and calls has the other send no more than a little to the addresses that
// it names, which are somebody else's.
func TestAttackCalledAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := behindRouters(t)
		defer w.end()
		var victims []netip.AddrPort
		for i := range wire.MaxTold {
			victims = append(victims, netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}), 443))
		}
		sent := 0
		w.set(func() {
			w.cut = true
			w.watch = func(to netip.AddrPort) {
				if slices.Contains(victims, to) {
					sent++
				}
			}
		})
		victim := w.peers[0]
		victim.d.tasks.Go(victim.d.probe)
		const length = time.Minute
		for begun := time.Now(); time.Since(begun) < length; time.Sleep(callEvery / 2) {
			victim.m.probing.mu.Lock()
			victim.m.called(wire.Call, victims, route{}, time.Now())
			victim.m.probing.mu.Unlock()
		}
		synctest.Wait()
		most := unprovenBurst + unprovenPerSecond*int(length/time.Second)
		w.set(func() {
			if sent > most || sent < wire.MaxTold {
				t.Errorf("%d datagrams went to addresses that the member named, at most %d wanted", sent, most)
			}
		})
	})
}

// behindRouters are two peers behind routers of their own, which keep one port for each and let in only who was sent to. All
// that either knows is where others see it.
func behindRouters(t *testing.T) *world {
	w := newWorld(t, addrPort("10.0.0.2:4001"), addrPort("10.1.0.2:4001"))
	for i, p := range w.peers {
		p.router, p.mapped = netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i)}), uint16(40000+i)
		p.seen = []netip.AddrPort{netip.AddrPortFrom(p.router, p.mapped)}
	}
	return w
}

func TestPeersBehindRoutersFindEachOther(t *testing.T) {
	for _, lost := range []float64{0, 0.5} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := behindRouters(t)
				defer w.end()
				w.lost = lost
				w.meet()
				w.until(15*time.Second, "a direct path", w.direct)
			})
		})
	}
}

// TestPeersBehindRoutersFindEachOtherWhenever a way opens, also after an hour without: nothing is given up.
func TestPeersBehindRoutersFindEachOtherWhenever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := behindRouters(t)
		defer w.end()
		w.cut = true
		w.meet()
		time.Sleep(time.Hour)
		before := w.sent()
		time.Sleep(time.Minute)
		if n := w.sent() - before; n == 0 || n > 2*12*(1+burst)*wire.MaxTold {
			t.Errorf("%d datagrams a minute look for a path", n)
		}
		if !w.relayed() {
			t.Fatal("a path without a way")
		}
		w.set(func() { w.cut = false })
		w.until(10*time.Second, "a direct path", w.direct)
	})
}

// TestARouterThatChangesItsPort: the path is lost, and found again at the new one.
func TestARouterThatChangesItsPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := behindRouters(t)
		defer w.end()
		w.meet()
		w.until(15*time.Second, "a direct path", w.direct)
		time.Sleep(time.Minute)
		p := w.peers[0]
		w.set(func() {
			p.mapped, p.opened = 41000, make(map[netip.AddrPort]time.Time)
			p.seen = []netip.AddrPort{netip.AddrPortFrom(p.router, p.mapped)}
		})
		w.until(20*time.Second, "a path to the new port", func() bool {
			_, at := w.at()
			return w.direct() && at.Port() == 41000
		})
		if gap := w.peers[1].longest(); gap > 4*time.Second {
			t.Errorf("nothing came for %s", gap)
		}
	})
}

// TestRoutersThatCannotBePassed: the stream carries, and what is tried stays within bounds.
func TestRoutersThatCannotBePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := behindRouters(t)
		defer w.end()
		for _, p := range w.peers {
			p.mapped = 0
		}
		w.meet()
		time.Sleep(10 * time.Minute)
		if state, rtt, _ := w.peers[0].m.state(); state != PathRelayed || rtt != 80*time.Millisecond {
			t.Errorf("the path is %s, round trip %s", state, rtt)
		}
		if gap := w.peers[1].longest(); gap > 200*time.Millisecond {
			t.Errorf("the stream carried nothing for %s", gap)
		}
	})
}

// TestADeadPathIsLeft after two to three seconds of traffic that nobody answers, and taken again when it is back.
func TestADeadPathIsLeft(t *testing.T) {
	for _, rtt := range []time.Duration{2 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(rtt.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := behindRouters(t)
				defer w.end()
				w.way = func(_, _ netip.AddrPort) time.Duration { return rtt / 2 }
				w.meet()
				w.until(15*time.Second, "a direct path", w.direct)
				time.Sleep(10 * time.Minute)
				if down := w.peers[0].d.n.stats.paths.down.Load(); down != 0 {
					t.Errorf("it was lost %d times before", down)
				}
				w.set(func() { w.cut = true })
				if took := w.until(time.Minute, "the stream carries", w.relayed); took > 3*time.Second+3*rtt {
					t.Errorf("noticed after %s", took)
				}
				time.Sleep(time.Minute)
				w.set(func() { w.cut = false })
				w.until(10*time.Second, "direct again", w.direct)
			})
		})
	}
}

// TestAPathWithoutAnswersToDataStays: UDP may go one way only; the probes are answered.
func TestAPathWithoutAnswersToDataStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := behindRouters(t)
		defer w.end()
		w.silent = true
		w.meet()
		w.until(15*time.Second, "a direct path", w.direct)
		time.Sleep(time.Hour)
		for _, p := range w.peers {
			if down := p.d.n.stats.paths.down.Load(); down != 0 {
				t.Errorf("it was lost %d times", down)
			}
		}
	})
}

// TestAFasterPathIsTaken while a slower one lives: two peers of one site know each other by their router's outside first.
func TestAFasterPathIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, addrPort("10.0.0.2:4001"), addrPort("10.0.0.3:4001"))
		defer w.end()
		for i, p := range w.peers {
			p.router, p.mapped = netip.MustParseAddr("203.0.113.1"), uint16(40000+i)
			p.seen = []netip.AddrPort{netip.AddrPortFrom(p.router, p.mapped)}
		}
		w.way = func(from, to netip.AddrPort) time.Duration {
			base := 10 * time.Millisecond
			if to.Addr().IsPrivate() {
				base = 200 * time.Microsecond
			}
			return base + time.Duration(w.rng.Int64N(int64(base))) // and as much again by chance
		}
		w.meet()
		w.until(15*time.Second, "a direct path", w.direct)
		time.Sleep(time.Minute)
		if a, b := w.at(); a.Addr() != w.peers[1].router || b.Addr() != w.peers[0].router {
			t.Fatalf("they are at %s and %s", a, b)
		}
		for _, p := range w.peers { // now they have been told
			w.set(func() { p.knows = []ma.Multiaddr{quicAddr(p.other.port.at)} })
		}
		w.until(2*compareEvery, "the path within the site", func() bool {
			a, b := w.at()
			return a == w.peers[1].port.at && b == w.peers[0].port.at
		})
		time.Sleep(time.Hour)
		for _, p := range w.peers {
			if moved := p.d.n.stats.paths.moved.Load(); moved != 1 {
				t.Errorf("moved %d times", moved)
			}
			if gap := p.longest(); gap > time.Second {
				t.Errorf("nothing came for %s", gap)
			}
		}
	})
}

// TestPathsThatAreAsGoodAreNotChangedFor each other, however the round trips vary.
func TestPathsThatAreAsGoodAreNotChangedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, addrPort("198.51.100.1:4001"), addrPort("198.51.100.2:4001"))
		defer w.end()
		for _, p := range w.peers { // each at four addresses
			p.seen = []netip.AddrPort{p.port.at}
			for n := range 3 {
				p.also = append(p.also, &simPort{p, netip.AddrPortFrom(p.port.at.Addr(), 5001+uint16(n))})
				p.seen = append(p.seen, p.also[n].at)
			}
		}
		w.way = func(_, _ netip.AddrPort) time.Duration {
			return 5*time.Millisecond + time.Duration(w.rng.Int64N(int64(10*time.Millisecond)))
		}
		w.meet()
		w.until(15*time.Second, "a direct path", w.direct)
		time.Sleep(time.Hour)
		if moved := w.peers[0].d.n.stats.paths.moved.Load(); moved != 0 {
			t.Errorf("moved %d times", moved)
		}
	})
}
