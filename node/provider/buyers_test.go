package provider

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// Buyers that did not fund a lease are remembered over a restart and for a time; of too many the oldest are forgotten.
func TestBrokenPromises(t *testing.T) {
	t.Parallel()
	journal, now := store.NewMemory(), time.UnixMilli(1_700_000_000_000)
	load := func() *remembered {
		b, err := loadRemembered(t.Context(), journal, kindBroken, now)
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
	for i := range maxRemembered + 1 {
		now = now.Add(time.Second)
		if err := b.add(t.Context(), key(i), now); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []*remembered{b, load()} {
		if len(b.at) != maxRemembered || b.has(key(0), now) || !b.has(key(1), now) || !b.has(key(maxRemembered), now) || b.has(key(maxRemembered+1), now) {
			t.Errorf("%d are remembered, among them the first: %v", len(b.at), b.has(key(0), now))
		}
	}
	now = now.Add(rememberedFor)
	if b.has(key(maxRemembered), now) {
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

// However many keys there are, so much work is begun before its deposit was seen; what is funded gives its start back.
func TestStarts(t *testing.T) {
	t.Parallel()
	var s starts
	now := time.UnixMilli(1_700_000_000_000)
	id := func(n int) market.LeaseID { return market.LeaseID{byte(n), byte(n >> 8)} }
	begun := 0
	for i := range 100 {
		if s.take(id(i), now) {
			begun++
		}
	}
	if begun != maxStarts || !s.take(id(0), now) || !s.took(id(0)) || s.took(id(99)) {
		t.Fatalf("%d of 100 begin early", begun)
	}
	s.end(id(0), true)
	s.end(id(1), false)
	if !s.take(id(200), now) || s.take(id(201), now) || s.took(id(0)) {
		t.Error("one that was funded gives one start back, one that was not gives none")
	}
	now = now.Add(startsOver)
	begun = 0
	for i := range 100 {
		if s.take(id(300+i), now) {
			begun++
		}
	}
	if begun != maxStarts {
		t.Errorf("%d begin early an hour later", begun)
	}
}
