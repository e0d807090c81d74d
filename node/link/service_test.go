package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// holds is one hold of one buyer, while it lasts.
type holds struct {
	mu    sync.Mutex
	hold  market.HoldID
	buyer sign.Key
}

func (h *holds) Measures(hold market.HoldID, by sign.Key) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold != hold || h.buyer != by {
		return errors.New("no such hold of yours here")
	}
	return nil
}

func (h *holds) Serves(by sign.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buyer == by
}

const rtt = 40 * time.Millisecond

// world is a buyer, host 0, and providers with a hold of it each.
type world struct {
	t   *testing.T
	net *p2ptest.Net
	h   []*holds
}

func key(t *testing.T, p peer.ID) sign.Key {
	k, err := p2p.KeyFromPeerID(p)
	if err != nil {
		t.Fatal(err)
	}
	return sign.Key(k)
}

func newWorld(t *testing.T, providers int) *world {
	w := &world{t: t, net: p2ptest.NewNet(t, providers+2, rtt), h: make([]*holds, providers+1)}
	for i := range providers {
		w.h[i+1] = &holds{hold: market.HoldID{byte(i + 1)}, buyer: key(t, w.net.Hosts[0].ID())}
		s := link.New(w.net.Hosts[i+1], p2ptest.Network, w.h[i+1], p2ptest.Quiet())
		t.Cleanup(s.Close)
	}
	return w
}

func (w *world) target(i int) *nodepb.LinkTarget {
	a := w.net.Addr(i)
	k := key(w.t, a.ID)
	t := &nodepb.LinkTarget{Peer: k[:]}
	for _, addr := range a.Addrs {
		t.Addrs = append(t.Addrs, addr.String())
	}
	return t
}

// ask has provider `of` measure, on the word of host `by`.
func (w *world) ask(by, of int, rounds, bytes uint32, targets ...*nodepb.LinkTarget) (*nodepb.MeasureReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	from, to := w.net.Hosts[by], w.net.Addr(of)
	if err := from.Connect(ctx, to); err != nil {
		w.t.Fatal(err)
	}
	return protocol.Measure.Call(ctx, from, p2ptest.Network, to.ID, &nodepb.MeasureRequest{Hold: w.h[of].hold[:], Rounds: rounds, Bytes: bytes, Targets: targets})
}

// Providers that hold units for one buyer measure the paths between them on its word: what the network is, and who is not there.
func TestMeasure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		reply, err := w.ask(0, 1, 3, 0, w.target(2), w.target(3), w.target(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reply.Results[:2] {
			if got := time.Duration(r.RttMicros) * time.Microsecond; got < rtt || got > rtt+5*time.Millisecond || r.Error != "" || r.Mbit != 0 || r.Relayed {
				t.Errorf("%+v", r)
			}
		}
		if r := reply.Results[2]; r.RttMicros != 0 || r.Error != link.FailedSelf {
			t.Errorf("%+v", r)
		}
		if reply, err = w.ask(0, 2, 1, 1<<20, w.target(3)); err != nil || reply.Results[0].Mbit == 0 || reply.Results[0].Mbit > 2500 {
			t.Error(reply, err) // the simulated link carries 1,000
		}
		w.net.Crash(3)
		if reply, err = w.ask(0, 1, 1, 0, w.target(3), w.target(2)); err != nil || reply.Results[0].Error == "" || reply.Results[1].RttMicros == 0 {
			t.Error(reply, err)
		}
	})
}

// Nobody measures for who holds nothing there, nor takes bytes for a buyer that it does not serve, and each hold is good for so much only.
func TestMeasureRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		refused := func(what, code string, err error) {
			t.Helper()
			var no *stream.Refused
			if !errors.As(err, &no) || no.Code != code {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := w.ask(3, 1, 1, 0, w.target(2))
		refused("another's hold", string(market.ReasonHold), err)
		for what, c := range map[string]struct {
			rounds, bytes uint32
			targets       []*nodepb.LinkTarget
		}{
			"no targets":       {1, 0, nil},
			"no rounds":        {0, 0, []*nodepb.LinkTarget{w.target(2)}},
			"many rounds":      {link.MaxEchoes + 1, 0, []*nodepb.LinkTarget{w.target(2)}},
			"many bytes":       {1, link.MaxBytes + 1, []*nodepb.LinkTarget{w.target(2)}},
			"bytes to several": {1, 1, []*nodepb.LinkTarget{w.target(2), w.target(2)}},
			"many targets":     {1, 0, make([]*nodepb.LinkTarget, link.MaxTargets+1)},
			"no peer":          {1, 0, []*nodepb.LinkTarget{{}}},
			"no key":           {1, 0, []*nodepb.LinkTarget{{Peer: make([]byte, 32)}}},
		} {
			for i, target := range c.targets {
				if target == nil {
					c.targets[i] = w.target(2)
				}
			}
			var bad *stream.Malformed
			if _, err := w.ask(0, 1, c.rounds, c.bytes, c.targets...); !errors.As(err, &bad) {
				t.Errorf("%s: %v", what, err)
			}
		}
		// The other end has let its hold go.
		w.h[2].mu.Lock()
		w.h[2].buyer = sign.Key{}
		w.h[2].mu.Unlock()
		reply, err := w.ask(0, 1, 1, 0, w.target(2))
		if err != nil || reply.Results[0].Error != link.FailedRefused {
			t.Error(reply, err)
		}
		// 2,048 paths are measured for a hold, and no more.
		many := make([]*nodepb.LinkTarget, link.MaxTargets)
		for i := range many {
			many[i] = w.target(1) // itself, which takes no time
		}
		for range 2048/link.MaxTargets - 1 {
			if _, err := w.ask(0, 1, 1, 0, many...); err != nil {
				t.Fatal(err)
			}
		}
		_, err = w.ask(0, 1, 1, 0, many...)
		refused("a hold that had its share", string(market.ReasonLimit), err)
	})
}

// TestAttackMeasureScans: a buyer that names addresses where no peer is learns nothing of what is there: not by words, and not by when they come.
func TestAttackMeasureScans(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	buyer, provider := hosts[0], hosts[1]
	h := &holds{hold: market.HoldID{1}, buyer: key(t, buyer.ID())}
	s := link.New(provider, p2ptest.Network, h, p2ptest.Quiet())
	defer s.Close()
	p2ptest.ConnectAll(t, buyer, provider)
	serve := func(greeting string) string {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				_, _ = io.WriteString(c, greeting)
			}
		}()
		return l.Addr().String()
	}
	for i, addr := range []string{"127.0.0.1:1", serve("SSH-2.0-OpenSSH_9.6p1\r\n"), serve(""), serve("HTTP/1.1 400 Bad Request\r\n\r\n"), "169.254.169.254:80"} {
		id, err := peer.IDFromPrivateKey(p2ptest.Key(500 + i))
		if err != nil {
			t.Fatal(err)
		}
		k := key(t, id)
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		reply, err := protocol.Measure.Call(t.Context(), buyer, p2ptest.Network, provider.ID(), &nodepb.MeasureRequest{
			Hold: h.hold[:], Rounds: 1, Targets: []*nodepb.LinkTarget{{Peer: k[:], Addrs: []string{"/ip4/" + host + "/tcp/" + port}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := reply.Results[0]; r.Error != link.FailedUnreached || time.Since(began) < 2500*time.Millisecond {
			t.Errorf("%s: %q after %v", addr, r.Error, time.Since(began))
		}
	}
}
