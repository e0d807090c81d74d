package gossip

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// town is a simulated network in which the first hosts are in the topic orders/gpu and the others in orders/cpu.
type town struct {
	*p2ptest.Net
	topics []*Topic[string]
}

func newTown(t *testing.T, n, gpus int) *town {
	t.Helper()
	w := &town{Net: p2ptest.NewNet(t, n, 20*time.Millisecond)}
	for i, h := range w.Hosts {
		name := "orders/cpu"
		if i < gpus {
			name = "orders/gpu"
		}
		topic, err := Join(start(t, h), name, words, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.topics = append(w.topics, topic)
	}
	return w
}

// hints are the addresses of hosts.
func (w *town) hints(from, to int) (out []peer.AddrInfo) {
	for i := from; i < to; i++ {
		out = append(out, w.Addr(i))
	}
	return out
}

// dialled counts the peers that a host opens connections to.
func dialled(h *p2p.Host) func() map[peer.ID]int {
	var mu sync.Mutex
	to := map[peer.ID]int{}
	h.Network().Notify(&network.NotifyBundle{ConnectedF: func(_ network.Network, c network.Conn) {
		mu.Lock()
		defer mu.Unlock()
		if c.Stat().Direction == network.DirOutbound {
			to[c.RemotePeer()]++
		}
	}})
	return func() map[peer.ID]int {
		mu.Lock()
		defer mu.Unlock()
		out := map[peer.ID]int{}
		for p, n := range to {
			out[p] = n
		}
		return out
	}
}

func (w *town) protected(of int, tag string) (n int) {
	for i := range w.Hosts {
		if w.Hosts[of].ConnManager().IsProtected(w.Addr(i).ID, tag) {
			n++
		}
	}
	return n
}

// A peer whose neighbours are all in other topics meets a few of its own, no more than it needs, and others when they go.
func TestMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, gpus = 24, 12
		w := newTown(t, n, gpus)
		for i := gpus; i < n; i++ { // every gpu host knows cpu hosts alone
			if err := w.Hosts[i-gpus].Connect(t.Context(), w.Addr(i)); err != nil {
				t.Fatal(err)
			}
		}
		m := w.topics[0].Meet(func(context.Context, int) ([]peer.AddrInfo, error) { return w.hints(0, gpus), nil })
		opened := dialled(w.Hosts[0])
		p2ptest.Go(t, m.Run)
		if got := m.Wait(t.Context()); got == 0 {
			t.Fatal("nobody is met")
		}
		time.Sleep(10 * time.Second)
		if got := len(w.topics[0].Peers()); got != meetPeers || len(opened()) != meetPeers || w.protected(0, m.tag) != meetPeers {
			t.Fatalf("%d peers of the topic, %d dialled, %d protected; want %d of each", got, len(opened()), w.protected(0, m.tag), meetPeers)
		}
		publish(t, w.topics[0], "hello")
		heard := 0
		for _, p := range w.topics[0].Peers() {
			for i := 1; i < gpus; i++ {
				if w.Addr(i).ID == p && next(t, w.topics[i]).Data == "hello" {
					heard++
				}
			}
		}
		if heard != meetPeers {
			t.Errorf("%d heard it, want %d", heard, meetPeers)
		}

		// Those that it met go; it meets others, and is rid of the dead.
		for _, p := range w.topics[0].Peers()[:3] {
			for i := 1; i < gpus; i++ {
				if w.Hosts[i] != nil && w.Addr(i).ID == p {
					w.Hosts[i].Close()
				}
			}
		}
		time.Sleep(time.Minute)
		if got := len(w.topics[0].Peers()); got != meetPeers || w.protected(0, m.tag) != meetPeers {
			t.Errorf("after three went: %d peers of the topic, %d protected; want %d", got, w.protected(0, m.tag), meetPeers)
		}
		if got := len(opened()); got != meetPeers+3 {
			t.Errorf("%d were dialled, want %d", got, meetPeers+3)
		}
		// Now and then one more is met, in case these four are alone.
		time.Sleep(2 * healEvery)
		if got := len(w.topics[0].Peers()); got <= meetPeers || w.protected(0, m.tag) > meetPeers {
			t.Errorf("later: %d peers of the topic, %d protected", got, w.protected(0, m.tag))
		}
	})
}

// Hints are anybody's word: a thousand that lead nowhere, or to peers of other topics, cost a few dials a round, each peer one
// in ten minutes; and when the good one is among them it is found.
func TestMeetHostileHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, gpus = 16, 2
		w := newTown(t, n, gpus)
		if err := w.Hosts[0].Connect(t.Context(), w.Addr(n-1)); err != nil {
			t.Fatal(err)
		}
		hints := append(w.hints(gpus, n), peer.AddrInfo{ID: w.Addr(5).ID}, w.Addr(0))
		for i := range 1000 { // who is not there
			id, err := peer.IDFromPrivateKey(p2ptest.Key(5000 + i))
			if err != nil {
				t.Fatal(err)
			}
			hints = append(hints, peer.AddrInfo{ID: id, Addrs: w.Addr(2 + i%8).Addrs})
		}
		var mu sync.Mutex
		rounds := 0
		m := w.topics[0].Meet(func(context.Context, int) ([]peer.AddrInfo, error) {
			mu.Lock()
			defer mu.Unlock()
			rounds++
			return hints, nil
		})
		opened := dialled(w.Hosts[0])
		p2ptest.Go(t, m.Run)
		if got := m.Wait(t.Context()); got != 0 {
			t.Fatalf("met %d", got)
		}
		time.Sleep(6 * time.Minute)
		mu.Lock()
		total := 0
		for p, k := range opened() {
			if total += k; k > 1 {
				t.Errorf("%s was dialled %d times", p, k)
			}
		}
		if shunned := len(m.shunned); rounds > 9 || total > rounds*meetDials || shunned > rounds*meetDials || shunned < meetDials {
			t.Errorf("%d rounds in six minutes, %d connections, %d peers shunned", rounds, total, shunned)
		}
		hints = append(hints[len(hints)-3:], w.Addr(1))
		mu.Unlock()
		if got := m.Wait(t.Context()); got != 1 {
			t.Errorf("met %d when one of four hints is good", got)
		}
		if w.protected(0, m.tag) > 1 {
			t.Errorf("%d are protected", w.protected(0, m.tag))
		}
	})
}

// Meetings of many topics together protect no more than a connection manager can bear, and give back what they protect.
func TestMeetHeld(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	g := start(t, hosts[0])
	g.held.Store(maxHeld - 1)
	a, b := join(t, g, 0).Meet(nil), &Meeting{tag: "topic:other", h: g.h, held: &g.held}
	a.keep(hosts[1].ID())
	b.keep(hosts[1].ID())
	conns := hosts[0].ConnManager()
	if !conns.IsProtected(hosts[1].ID(), a.tag) || conns.IsProtected(hosts[1].ID(), b.tag) {
		t.Error("the bound on protected peers does not hold")
	}
	a.end()
	b.end()
	if conns.IsProtected(hosts[1].ID(), "") || g.held.Load() != maxHeld-1 {
		t.Errorf("%d are held when all is over", g.held.Load())
	}
	if n := a.Wait(t.Context()); n != 0 {
		t.Errorf("%d peers after the end", n)
	}
}
