package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

func join(t *testing.T, h *p2p.Host) *Discovery {
	t.Helper()
	d, err := New(h, Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func offer(class, region, payload string) Record {
	return Record{Topics: []Topic{{class, region}}, Payload: []byte(payload)}
}

// found asks for a topic until want peers are found, because routing tables fill in the background.
func found(t *testing.T, d *Discovery, topic Topic, want int) []Found {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, err := d.Find(ctx, topic, 1000)
		if len(got) == want {
			return got
		}
		if err != nil {
			t.Fatalf("found %d peers of %v, want %d: %v", len(got), topic, want, err)
		}
	}
}

// hinted asks for hints of a topic until they are these peers.
func hinted(t *testing.T, d *Discovery, topic Topic, most int, want ...peer.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, err := d.Hints(ctx, topic, most)
		if err != nil {
			t.Fatalf("hints of %v are %v, want %v: %v", topic, got, want, err)
		}
		ok := len(got) == len(want)
		for _, p := range got {
			ok = ok && slices.Contains(want, p.ID) && len(p.Addrs) > 0
		}
		if ok {
			return
		}
	}
}

// publish publishes, waiting for the first other peer of the DHT.
func publish(t *testing.T, d *Discovery, r Record) {
	t.Helper()
	for {
		err := d.Publish(t.Context(), r)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNoPeers) {
			t.Fatal(err)
		}
	}
}

func TestFindOnLoopback(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 5)
	var ds []*Discovery
	for _, h := range hosts {
		ds = append(ds, join(t, h))
	}
	for _, h := range hosts[1:] { // a star: the others are found through the first
		p2ptest.ConnectAll(t, hosts[0], h)
	}
	publish(t, ds[1], offer("cpu", "local", "one"))
	publish(t, ds[2], offer("cpu", "eu-west", "two"))
	publish(t, ds[3], offer("gpu/h100", "local", "three"))
	got := found(t, ds[4], Topic{Class: "cpu"}, 2)
	for _, f := range got {
		if !f.Live || len(f.Peer.Addrs) == 0 {
			t.Errorf("%s: live %v, addresses %v", f.Record.Payload, f.Live, f.Peer.Addrs)
		}
	}
	if got := found(t, ds[4], Topic{"cpu", "local"}, 1); string(got[0].Record.Payload) != "one" || got[0].Peer.ID != hosts[1].ID() {
		t.Errorf("found %+v", got)
	}
	if got, err := ds[4].Find(t.Context(), Topic{Class: "cpu"}, 1); len(got) != 1 || err != nil {
		t.Errorf("found %d peers, %v; asked for one", len(got), err)
	}
	found(t, ds[4], Topic{"gpu/h100", "eu-west"}, 0)
	found(t, ds[3], Topic{"gpu/h100", "local"}, 0) // oneself is not found
	if _, err := ds[4].Find(t.Context(), Topic{Class: "CPU"}, 1); !errors.Is(err, ErrMalformed) {
		t.Errorf("bad topic: got %v, want ErrMalformed", err)
	}
	hinted(t, ds[4], Topic{Class: "cpu"}, 100, hosts[1].ID(), hosts[2].ID())
	hinted(t, ds[1], Topic{Class: "cpu"}, 1, hosts[2].ID()) // not oneself
	if _, err := ds[4].Hints(t.Context(), Topic{Class: "CPU"}, 1); !errors.Is(err, ErrMalformed) {
		t.Errorf("bad topic: got %v, want ErrMalformed", err)
	}
	if err := ds[1].Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	found(t, ds[4], Topic{Class: "cpu"}, 1)
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	d := join(t, p2ptest.Loopback(t, 1)[0])
	ctx := t.Context()
	if err := d.Publish(ctx, offer("cpu", "local", "x")); !errors.Is(err, ErrNoPeers) {
		t.Errorf("alone: got %v, want ErrNoPeers", err)
	}
	for name, tc := range map[string]struct {
		r    Record
		want error
	}{
		"old sequence": {Record{Seq: 1}, ErrReplayed},
		"expired":      {Record{Expires: time.Now().Add(-time.Second)}, ErrExpired},
		"too long":     {Record{Expires: time.Now().Add(2 * MaxValidity)}, ErrBadTime},
		"too large":    {Record{Payload: make([]byte, MaxRecord)}, ErrMalformed},
		"bad topic":    {offer("", "", ""), ErrMalformed},
	} {
		if err := d.Publish(ctx, tc.r); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	if r, _ := d.own.renewed(0); string(r.Payload) != "x" {
		t.Error("a refused record replaced the good one")
	}
}

// Once a newer record was seen, an older one is not believed again, though its signature is good.
func TestReplayRefused(t *testing.T) {
	t.Parallel()
	d := join(t, p2ptest.Loopback(t, 1)[0])
	now := time.Now()
	sign := func(age time.Duration) []byte {
		at := now.Add(-age)
		data, err := encode(p2ptest.Network, p2ptest.Key(7), Record{Seq: uint64(at.UnixMilli()), Expires: at.Add(time.Minute)}, now)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	old, young := sign(time.Second), sign(0)
	for i, tc := range []struct {
		data []byte
		want error
	}{{old, nil}, {old, nil}, {young, nil}, {old, ErrReplayed}, {young, nil}} {
		if _, err := d.believe(idOf(7), tc.data); !errors.Is(err, tc.want) {
			t.Errorf("read %d: got %v, want %v", i, err, tc.want)
		}
	}
}

func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	d := join(t, p2ptest.Loopback(t, 1)[0])
	d.seen.seen = map[peer.ID]mark{}
	for i := range seenMax {
		d.seen.seen[peer.ID(fmt.Sprint(i))] = mark{1, time.Now().Add(time.Hour)}
	}
	now := time.Now()
	data, err := encode(p2ptest.Network, p2ptest.Key(7), Record{Seq: uint64(now.UnixMilli()), Expires: now.Add(time.Minute)}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.believe(idOf(7), data); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.seen.seen[idOf(7)]; !ok || len(d.seen.seen) > seenMax {
		t.Errorf("%d peers remembered, the new one among them: %v", len(d.seen.seen), ok)
	}
}

// Twenty peers on a simulated network find each other, survive the death of a publisher, forget it when
// its record expires, and keep finding what is renewed.
func TestSimulated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		net := p2ptest.NewNet(t, n, 40*time.Millisecond)
		stops := make([]func(), n)
		ds := make([]*Discovery, n)
		for i, h := range net.Hosts {
			ds[i] = join(t, h)
			stops[i] = p2ptest.Go(t, ds[i].Run)
		}
		for i := 1; i < n; i++ {
			if err := net.Hosts[i].Connect(t.Context(), net.Addr(i/2)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		for i := range n / 2 {
			if err := ds[i].Publish(t.Context(), offer("cpu", "local", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		got, err := ds[n-1].Find(t.Context(), Topic{"cpu", "local"}, 100)
		if err != nil || len(got) != n/2 {
			t.Fatalf("found %d, %v; want %d", len(got), err, n/2)
		}
		t.Logf("found all in %v of simulated time", time.Since(start))

		victim := net.Addr(3).ID
		stops[3]()
		ds[3].Close()
		net.Crash(3)
		isVictim := func(f Found) bool { return f.Peer.ID == victim }
		got, err = ds[n-1].Find(t.Context(), Topic{"cpu", "local"}, 100)
		if err != nil || len(got) != n/2 || got[slices.IndexFunc(got, isVictim)].Live {
			t.Errorf("right after a death found %d, %v; want the dead one's copy among %d", len(got), err, n/2)
		}
		time.Sleep(2 * DefaultValidity)
		got, err = ds[n-1].Find(t.Context(), Topic{"cpu", "local"}, 100)
		if err != nil || len(got) != n/2-1 || slices.ContainsFunc(got, isVictim) {
			t.Errorf("after the dead one's record expired found %d, %v; want %d", len(got), err, n/2-1)
		}
	})
}
