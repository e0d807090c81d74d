package provider

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// Buyers that did not fund a lease are remembered over a restart and for a time; of too many the oldest are forgotten.
func TestBrokenPromises(t *testing.T) {
	t.Parallel()
	journal, now := store.NewMemory(), time.UnixMilli(1_700_000_000_000)
	load := func() *broken {
		b, err := loadBroken(t.Context(), journal, now)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := func(n int) (k sign.Key) {
		binary.BigEndian.PutUint32(k[:], uint32(n)+1)
		return k
	}
	b := load()
	for i := range maxBroken + 1 {
		now = now.Add(time.Second)
		if err := b.add(t.Context(), key(i), now); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []*broken{b, load()} {
		if len(b.at) != maxBroken || b.by(key(0), now) || !b.by(key(1), now) || !b.by(key(maxBroken), now) || b.by(key(maxBroken+1), now) {
			t.Errorf("%d are remembered, among them the first: %v", len(b.at), b.by(key(0), now))
		}
	}
	now = now.Add(brokenFor)
	if b.by(key(maxBroken), now) {
		t.Error("one of long ago is remembered")
	}
	if again := load(); len(again.at) != 0 {
		t.Errorf("%d of long ago are read", len(again.at))
	}
	left := 0
	if err := journal.List(t.Context(), kindBroken, "", func(string, []byte) error { left++; return nil }); err != nil || left > 0 {
		t.Errorf("%d of long ago are in the journal: %v", left, err)
	}
}
