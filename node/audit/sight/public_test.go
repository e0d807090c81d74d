package sight

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// blocks is a chain with blocks in some slots, of which those up to one are final.
type blocks struct {
	slots []market.Slot // ascending
	final market.Slot
	down  error

	mu    sync.Mutex
	asked map[market.Slot]int
}

func (b *blocks) Block(_ context.Context, from market.Slot) (chain.Block, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[from]++
	if b.down != nil {
		return chain.Block{}, b.down
	}
	for _, s := range b.slots {
		if s >= from && s <= b.final {
			return chain.Block{Slot: s, Hash: hashOf(s)}, nil
		}
	}
	return chain.Block{}, chain.ErrNotFound
}

func hashOf(s market.Slot) sign.Hash {
	return sign.Sum(binary.LittleEndian.AppendUint64([]byte("block"), uint64(s)))
}

// publicOf is what a peer sees of such a chain in a slot.
func publicOf(t interface{ Fatal(...any) }, b *blocks, slots, oneIn uint64, now *market.Slot) *Public {
	g := audittest.New(3).Genesis()
	g.AuditSlots, g.AuditOneIn = slots, oneIn
	p, err := NewPublic(PublicConfig{
		Genesis: g, Slot: func() (market.Slot, error) { return *now, nil }, Blocks: b, Log: slog.New(slog.DiscardHandler),
		Roster: func(context.Context, audit.Window) (audit.Roster, error) { return nil, errors.New("nobody") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Safety: the last two windows with an audit are those whose blocks say so, whichever windows have no block; no block is asked for twice.
func TestRecent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, oneIn := rapid.Uint64Range(10, 20).Draw(t, "slots"), rapid.Uint64Range(2, 6).Draw(t, "one in")
		b := &blocks{asked: map[market.Slot]int{}}
		for s, end := market.Slot(0), market.Slot(slots)*200; s < end; s += market.Slot(rapid.SampledFrom([]int{1, 1, 2, 5, 37}).Draw(t, "gap")) {
			b.slots = append(b.slots, s)
		}
		b.final = b.slots[len(b.slots)-1]
		now := b.final
		p := publicOf(t, b, slots, oneIn, &now)
		w := audit.Window(rapid.Uint64Range(0, uint64(audit.WindowOf(b.final, slots))).Draw(t, "window"))
		got, err := p.RecentAt(context.Background(), w)
		if err != nil {
			t.Fatal(err)
		}
		want := audit.Recent{Known: w, Last: p.Instants().Ago(w, audit.Horizon)}
		want.Before = want.Last
		found := 0
		for at := w; found < 2 && at+1 > want.Before && want.Before == p.Instants().Ago(w, audit.Horizon); at-- {
			for _, s := range b.slots {
				if s < at.First(slots) {
					continue
				}
				if audit.WindowOf(s, slots) == at && p.Instants().Fires(audit.Beacon{Slot: s, Value: hashOf(s)}) {
					if found++; found == 1 {
						want.Last = at
					} else {
						want.Before = at
					}
				}
				break
			}
			if at == 0 || found == 2 {
				break
			}
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if again, err := p.RecentAt(context.Background(), w); err != nil || again != got {
			t.Fatalf("%+v, then %+v: %v", got, again, err)
		}
		for s, n := range b.asked {
			if n > 1 {
				t.Fatalf("the block of slot %d was asked for %d times", s, n)
			}
		}
	})
}

// What had audits is known as blocks become final, not by the clock: a window of which nothing is known yet makes nothing stale, and a peer
// that is too far behind the chain sells and buys nothing as proven.
func TestRecentFollowsTheChain(t *testing.T) {
	t.Parallel()
	const slots = 300
	b := &blocks{asked: map[market.Slot]int{}, down: chain.ErrDown}
	for s := range market.Slot(slots * 60) {
		b.slots = append(b.slots, s)
	}
	now := market.Slot(slots*50 + 10)
	b.final = now - 32
	p := publicOf(t, b, slots, 2, &now)
	if _, err := p.Recent(); !errors.Is(err, errNotLooked) {
		t.Errorf("before it looked: %v", err)
	}
	if err := p.look(t.Context()); !errors.Is(err, chain.ErrDown) {
		t.Errorf("a chain that cannot be asked: %v", err)
	}
	b.down = nil
	look := func() audit.Recent {
		t.Helper()
		if err := p.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := p.Recent()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(); r.Known != 49 || r.Last > 49 || r.Before >= r.Last {
		t.Errorf("before the window's block is final: %+v", r)
	}
	now, b.final = slots*50+60, slots*50
	if r := look(); r.Known != 50 {
		t.Errorf("when it is: %+v", r)
	}
	before := len(b.asked)
	if look(); len(b.asked) != before {
		t.Error("it asks for what it knows")
	}
	now = slots*(50+maxBehind+1) + 100 // the chain stands still
	if err := p.look(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Recent(); !errors.Is(err, errNotLooked) {
		t.Errorf("a chain that stands still: %v", err)
	}
	b.final = slots*(50+maxBehind+1) + 50
	if r := look(); r.Known != 50+maxBehind+1 {
		t.Errorf("and goes on: %+v", r)
	}
	every := publicOf(t, b, slots, 1, &now)
	if r, err := every.Recent(); err != nil || r != audit.Every(audit.WindowOf(now, slots)) {
		t.Errorf("where each window has an audit: %+v, %v", r, err)
	}
}

// The audit before one is that of the newest window before it whose block drew one: by it a reader knows whether a record had to be an appeal.
func TestAuditBefore(t *testing.T) {
	t.Parallel()
	block := func(w audit.Window) audit.Beacon {
		first := market.Slot(w.First(100))
		return audit.Beacon{Slot: first, Value: hashOf(first)}
	}
	w := &still{Case: audittest.New(7)}
	w.Beacons = block
	f := w.failed(t, store.NewMemory())
	for _, oneIn := range []uint64{1, 2, 5} {
		w.OneIn = oneIn
		for at := audit.Window(200); at < 260; at++ {
			want := at - 1
			for !w.Instants().Fires(block(want)) && want > w.Instants().Ago(at, audit.Horizon) {
				want--
			}
			if got, err := f.before(t.Context(), at); err != nil || got != want {
				t.Errorf("one in %d, before window %d: %d, want %d: %v", oneIn, at, got, want, err)
			}
		}
	}
}
