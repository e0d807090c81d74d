package peermap

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"
)

// A full map gives up one peer for a new one, and none when a peer that it has gets another value.
func TestMapIsBounded(t *testing.T) {
	t.Parallel()
	var m Map[int]
	id := func(i int) peer.ID { return peer.ID(fmt.Sprint("peer", i)) }
	for i := range 3 * Max {
		m.Set(id(i), i)
		if v, ok := m.Get(id(i)); !ok || v != i {
			t.Fatalf("peer %d: got %d, %v", i, v, ok)
		}
	}
	if len(m.m) != Max {
		t.Fatalf("%d peers, want %d", len(m.m), Max)
	}
	held := func() (out []peer.ID) {
		for i := range 3 * Max {
			if _, ok := m.Get(id(i)); ok {
				out = append(out, id(i))
			}
		}
		return out
	}
	before := held()
	for range 100 {
		m.Set(before[0], -1)
	}
	if after := held(); len(after) != len(before) {
		t.Errorf("new values of one peer left %d of %d peers", len(after), len(before))
	}
}

// TestMapIsAMap compares it to a plain map as long as there is room.
func TestMapIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m Map[int]
		want := map[peer.ID]int{}
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			p := peer.ID(rapid.StringN(1, 2, 4).Draw(t, "peer"))
			if rapid.Bool().Draw(t, "delete") {
				m.Delete(p)
				delete(want, p)
			} else {
				m.Set(p, i)
				want[p] = i
			}
			v, ok := m.Get(p)
			if w, has := want[p]; v != w || ok != has {
				t.Fatalf("got %d, %v, want %d, %v", v, ok, w, has)
			}
		}
	})
}
