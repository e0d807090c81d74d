package credit

import (
	"context"
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
	load := func() *remembered {
		b, err := loadRemembered(t.Context(), journal, unfundedTable, now)
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
	if err := journal.List(t.Context(), "unfunded", "", func(string, []byte) error { left++; return nil }); err != nil || left > 0 {
		t.Errorf("%d of long ago are in the journal: %v", left, err)
	}
}

// slow is a journal whose writes wait.
type slow struct {
	store.Store
	begun, open chan struct{}
}

func (s slow) Write(ctx context.Context, puts ...store.Put) error {
	close(s.begun)
	<-s.open
	return s.Store.Write(ctx, puts...)
}

// Quotes read the buyers while the journal writes one.
func TestReadWhileWriting(t *testing.T) {
	t.Parallel()
	journal, now, buyer := slow{store.NewMemory(), make(chan struct{}), make(chan struct{})}, time.Now(), sign.Key{1}
	b, err := loadRemembered(t.Context(), journal, fundedTable, now)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- b.add(t.Context(), buyer, now) }()
	<-journal.begun
	if !b.has(buyer, now) {
		t.Error("a buyer is not remembered before its write ends")
	}
	close(journal.open)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if _, err := fundedTable.Get(t.Context(), journal, buyer); err != nil {
		t.Error(err)
	}
}

// Keys are free: work begins on trust only for a buyer that paid here, and no more once it left a lease unfunded, also
// after a restart.
func TestTrusted(t *testing.T) {
	t.Parallel()
	journal, now := store.NewMemory(), time.Now()
	load := func() *Credit {
		c, err := New(t.Context(), journal, nil, &lapsing{}, someKey(0), testMint)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	fresh, payer, broke := someKey(1), someKey(2), someKey(3)
	c := load()
	if err := c.Paid(t.Context(), payer, broke); err != nil {
		t.Fatal(err)
	}
	if err := c.Broke(t.Context(), broke); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Credit{c, load()} {
		if c.Trusted(fresh, now) || !c.Trusted(payer, now) || c.Trusted(broke, now) {
			t.Errorf("fresh %v, payer %v, broke %v", c.Trusted(fresh, now), c.Trusted(payer, now), c.Trusted(broke, now))
		}
	}
	if now = now.Add(rememberedFor + time.Hour); c.Trusted(payer, now) {
		t.Error("it paid long ago")
	}
}
