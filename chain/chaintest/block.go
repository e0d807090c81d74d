package chaintest

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/chain"
)

// testBlocks: the block of a future slot is unknown, becomes final, and is then the same for all callers.
func testBlocks(t *testing.T, b *bench) {
	blocks := b.Ledger
	now, err := b.Ledger.Slot(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	from := now + 4
	if early, err := blocks.Block(b.ctx, from); !errors.Is(err, chain.ErrNotFound) {
		t.Fatalf("in slot %d: block %+v of slot %d or later, %v", now, early, from, err)
	}
	for {
		got, err := blocks.Block(b.ctx, from)
		if errors.Is(err, chain.ErrNotFound) {
			if err := b.Step(b.ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := blocks.Block(b.ctx, from)
		if err != nil || again != got || got.Slot < from || got.Hash.IsZero() {
			t.Fatalf("%+v, then %+v, %v", got, again, err)
		}
		if next, err := blocks.Block(b.ctx, got.Slot+1); err == nil &&
			(next.Slot <= got.Slot || next.Hash == got.Hash) {
			t.Fatalf("after %+v comes %+v", got, next)
		}
		return
	}
}
