package files

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// team is two providers of one buyer's job, and a peer with a lease of its own on the first.
type team struct {
	*testing.T
	hosts  []*p2p.Host
	stores []*blob.Store
	files  []*Files
}

const first, second, buyer, spy = 0, 1, 2, 3

func newTeam(t *testing.T, places int) *team {
	t.Helper()
	w := &team{T: t, hosts: p2ptest.Loopback(t, 4)}
	for _, h := range w.hosts {
		s, err := blob.OpenStore(t.TempDir(), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		f := New(Config{Host: h, Blobs: s, Network: p2ptest.Network, Fellows: places, Log: slog.New(slog.DiscardHandler)})
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		w.stores, w.files = append(w.stores, s), append(w.files, f)
	}
	p2ptest.ConnectAll(t, w.hosts...)
	return w
}

func (w *team) id(i int) peer.ID { return w.hosts[i].ID() }

// put stores content at a peer, which lets the others read it.
func (w *team) put(at int, content []byte, may ...int) cid.Cid {
	w.Helper()
	c, _, err := w.stores[at].Put(w.Context(), bytes.NewReader(content))
	if err != nil {
		w.Fatal(err)
	}
	for _, i := range may {
		w.files[at].Grant(w.id(i), c)
	}
	return c
}

func (w *team) obtain(at, from int, c cid.Cid, fellows ...int) error {
	places := workload.Places{Peer: w.id(from)}
	for _, i := range fellows {
		places.Fellows = append(places.Fellows, w.id(i))
	}
	return w.files[at].Obtain(w.Context(), places, c, 1<<30)
}

// asks reports whether a peer gets a blob, or a part of it, from another one.
func (w *team) asks(at, from int, c cid.Cid) bool {
	s, err := blob.OpenStore(w.TempDir(), 1<<30)
	if err != nil {
		w.Fatal(err)
	}
	err = blob.Fetch(w.Context(), w.hosts[at], p2ptest.Network, w.id(from), c, 1<<30, s, nil)
	if err != nil && !errors.Is(err, blob.ErrNotFound) {
		w.Errorf("peer %d asks %d: %v", at, from, err)
	}
	_, part := blob.Peer{Host: w.hosts[at], Network: p2ptest.Network, ID: w.id(from)}.Part(w.Context(), c, 1, 0, nil)
	if (part == nil) != (err == nil) && err != nil {
		w.Errorf("peer %d asks %d: the whole is refused, a part is not", at, from)
	}
	return err == nil
}

func content(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(data)
	return data
}

// Providers of one job give each other its files while it runs, and neither before nor after.
func TestFellows(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 2)
	c := w.put(buyer, content(5<<20), first, second)
	leave := w.files[first].Join(w.id(buyer), []peer.ID{w.id(second)}, []cid.Cid{c})
	again := w.files[first].Join(w.id(buyer), []peer.ID{w.id(second)}, []cid.Cid{c})
	if err := w.obtain(first, buyer, c, second); err != nil {
		t.Fatal(err)
	}
	if err := w.obtain(second, buyer, c, first); err != nil || !w.stores[second].Has(c) {
		t.Fatal(err)
	}
	leave()
	leave() // a second call changes nothing
	if !w.asks(second, first, c) {
		t.Error("a fellow of the second execution was refused")
	}
	again()
	if w.asks(second, first, c) || len(w.files[first].fellows.may) > 0 {
		t.Errorf("a fellow reads after the end; %d rights are left", len(w.files[first].fellows.may))
	}
}

// A provider that sends nothing to fellows, or has no place, refuses them and lets its buyer send.
func TestFellowsSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 0)
	c := w.put(buyer, content(5<<20), first, second)
	defer w.files[first].Join(w.id(buyer), []peer.ID{w.id(second)}, []cid.Cid{c})()
	for _, at := range []int{first, second} {
		if err := w.obtain(at, buyer, c, first, second); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := w.files[first].fellows.Enter(); ok {
		t.Error("there is a place")
	}
}

// A buyer names a peer of its own as a fellow, and the CID of what another buyer brought here. Its word is no right to
// it: neither to the blob nor to know that it is here.
func TestAttackFellowOfForeignBlob(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 2)
	secret := w.put(buyer, content(5<<20), first)
	if err := w.obtain(first, buyer, secret); err != nil {
		t.Fatal(err)
	}
	own := w.put(first, []byte("the provider's own"))
	absent := blob.Sum([]byte("absent"))
	// The spy has a lease here too, and names itself and the second provider as fellows.
	defer w.files[first].Join(w.id(spy), []peer.ID{w.id(spy), w.id(second)}, []cid.Cid{secret, own, absent})()
	for _, c := range []cid.Cid{secret, own, absent} {
		for _, at := range []int{spy, second} {
			if w.asks(at, first, c) {
				t.Errorf("peer %d got it", at)
			}
		}
		if err := w.obtain(first, spy, c, spy); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("the spy's execution: got %v, want ErrNotFound", err)
		}
	}
	w.put(spy, content(5<<20), first) // it has it anyway
	if err := w.obtain(first, spy, secret); err != nil {
		t.Fatal(err)
	}
	if !w.asks(second, first, secret) {
		t.Error("the fellow of a buyer that brought it was refused")
	}
}

// Fellows that are no peers of the job, or do not exist, are asked a few times, and the buyer sends it all.
func TestAttackFellowsThatAreVictims(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 2)
	c := w.put(buyer, content(6<<20), first)
	at := workload.Places{Peer: w.id(buyer), Fellows: []peer.ID{w.id(spy), w.id(first), w.id(buyer)}}
	for i := range 5 {
		id, err := peer.IDFromPrivateKey(p2ptest.Key(100 + i))
		if err != nil {
			t.Fatal(err)
		}
		at.Fellows = append(at.Fellows, id)
	}
	if s := w.files[first].swarm(at); len(s.Fellows) != 6 {
		t.Errorf("%d fellows, want 6: neither this peer nor the buyer", len(s.Fellows))
	}
	if err := w.files[first].Obtain(t.Context(), at, c, 1<<30); err != nil || !w.stores[first].Has(c) {
		t.Error(err)
	}
	for _, p := range w.files[first].swarm(at).Fellows { // not asked during Obtain
		if _, err := p.Part(t.Context(), c, 6<<20, 0, nil); err == nil {
			t.Error("a victim sends parts")
		}
	}
	if s := w.files[first].swarm(at); len(s.Fellows) != 1 {
		t.Errorf("%d fellows for the next file, want the one that can be reached", len(s.Fellows))
	}
}
