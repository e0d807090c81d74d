package billing

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
)

// lying is a chain whose endpoints tell what they like.
type lying struct{ tip chain.Tip }

func (l *lying) Tip(context.Context) (chain.Tip, error) {
	if l.tip == (chain.Tip{}) {
		return l.tip, chain.ErrDown
	}
	return l.tip, nil
}

func (l *lying) says(s market.Slot) { l.tip = chain.Tip{Confirmed: s, Final: s - 32} }

// One answer of the endpoints, years ahead, must not stop a provider: neither in this process nor, by way of the journal, in
// the next one.
func TestAttackEndpointLiesAboutSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const began, lie = 300_000_000, 900_000_000
		ctx, st, src := t.Context(), store.NewMemory(), &lying{}
		begin := func() *Meters {
			clock := slots.New(src, 400, time.Second, slog.New(slog.DiscardHandler))
			p, err := New(ctx, Config{Store: st, Slots: clock})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		meter := func(p *Meters) market.Slot { // as sold.Complete does with every change
			t.Helper()
			now, err := p.cfg.Slots.Now(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			journalFloor(t, st, market.LeaseID{1}, p.floor.meter(now, 0, nil))
			return now
		}
		const margin = market.Slot(slots.Margin / (400 * time.Millisecond))

		p := begin()
		src.says(began)
		if err := p.cfg.Slots.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		src.says(lie)
		if err := p.cfg.Slots.Sync(ctx); !errors.Is(err, slots.ErrAhead) {
			t.Errorf("slot %d right after slot %d: %v", lie, began, err)
		}
		if now := meter(p); now != began {
			t.Errorf("after the lie the clock says %d", now)
		}

		time.Sleep(time.Minute)
		p = begin()
		if err := p.cfg.Slots.Sync(ctx); !errors.Is(err, slots.ErrAhead) {
			t.Errorf("slot %d to a process that began anew: %v", lie, err)
		}
		src.says(began + 150)
		if err := p.cfg.Slots.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if now := meter(p); now != began+150 {
			t.Errorf("a minute later the clock says %d", now)
		}

		// A lie about confirmed slots alone, or no answer for hours, moves what is journalled by no more than the margin.
		src.tip.Confirmed += margin
		_ = p.cfg.Slots.Sync(ctx)
		time.Sleep(time.Hour)
		src.tip = chain.Tip{}
		_ = p.cfg.Slots.Sync(ctx)
		if now := meter(p); now > began+150+margin {
			t.Errorf("the clock says %d, %d slots past the last final one", now, now-(began+150-32))
		}
		next := begin()
		if got := next.floor.free(nil); got > began+150+margin {
			t.Errorf("after a restart a lease is billed from slot %d", got)
		}
	})
}
