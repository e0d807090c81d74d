package pay

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// during is a store that calls a function in its first write.
type during struct {
	store.Store
	writes atomic.Int32
	first  func()
}

func (d *during) Write(ctx context.Context, puts ...store.Put) error {
	if d.writes.Add(1) == 1 {
		d.first()
	}
	return d.Store.Write(ctx, puts...)
}

// While a view is written, readers have the newer one, another change is journalled after it, and a view that is dropped
// meanwhile is not written again.
func TestViewsDoNotWait(t *testing.T) {
	t.Parallel()
	paid := func(amount market.Amount) func(*record.Escrow) {
		return func(e *record.Escrow) { e.Address, e.Paid = sign.Key{1}, amount }
	}
	for _, dropped := range []bool{false, true} {
		disk := &during{Store: store.NewMemory()}
		x := newViews(Config{Store: disk, Log: p2ptest.Quiet()})
		disk.first = func() {
			if got := x.of("job"); len(got) != 1 || got[0].Paid != 1 {
				t.Errorf("a reader finds %+v", got)
			}
			x.change("job/order", paid(2))
			x.change("job/order", paid(3))
			if dropped {
				x.drop("job")
			}
		}
		x.change("job/order", paid(1))
		e, err := escrowTable.Get(t.Context(), disk, "job/order")
		if want := map[bool]market.Amount{false: 3, true: 1}[dropped]; err != nil || e.Paid != want {
			t.Errorf("dropped: %v: the journal has %d, %v, want %d", dropped, e.Paid, err, want)
		}
		if want := map[bool]int32{false: 2, true: 1}[dropped]; disk.writes.Load() != want {
			t.Errorf("dropped: %v: %d writes, want %d", dropped, disk.writes.Load(), want)
		}
		if x.change("job/order", paid(4)); len(x.writing) != 0 || x.of("job")[0].Paid != 4 {
			t.Errorf("the next change: %+v", x.of("job"))
		}
	}
}
