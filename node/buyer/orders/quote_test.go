package orders

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

var testGenesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

func TestSlotsFor(t *testing.T) {
	t.Parallel()
	if got := slotsFor(0, 5); got != math.MaxUint64 {
		t.Errorf("free slots for 5: %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := market.Rate(rapid.Uint64Range(1, 1<<50).Draw(t, "rate"))
		money := market.Amount(rapid.Uint64().Draw(t, "money"))
		n := slotsFor(rate, money)
		if cost, err := rate.Owed(n); err == nil && cost > money {
			t.Fatalf("%d slots cost %d, more than %d", n, cost, money)
		}
		if n < math.MaxUint64 {
			// One more slot costs more, but for the rounding down of its last millionth.
			if cost, err := rate.Owed(n + 1); err == nil && cost < money {
				t.Fatalf("%d slots cost %d, less than %d", n+1, cost, money)
			}
		}
	})
}

// However many leases are taken one after the other, they can never cost more together than the budget.
func TestAffordable(t *testing.T) {
	t.Parallel()
	b := &Office{Config: Config{Genesis: testGenesis}}
	rapid.Check(t, func(t *rapid.T) {
		j := record.Job{Spec: job.Job{
			Count: 4, Resources: job.Resources{Units: uint32(rapid.IntRange(1, 8).Draw(t, "units"))},
			Timeouts: job.Timeouts{Run: time.Duration(rapid.IntRange(1, 100_000).Draw(t, "run")) * time.Second},
			Payment: job.Payment{
				MaxPrice: market.Price(rapid.Uint64Range(0, 1<<40).Draw(t, "price")),
				Budget:   market.Amount(rapid.Uint64Range(1, 1<<55).Draw(t, "budget")),
			},
		}}
		var committed market.Amount
		for range 6 {
			n := rapid.IntRange(1, 4).Draw(t, "n")
			slots, most, err := b.affordable(j, n, n+rapid.IntRange(0, 3).Draw(t, "others"), committed)
			var out *unpaid
			if errors.As(err, &out) {
				if !strings.Contains(out.reason, "payment.") {
					t.Fatalf("refused with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if slots < testGenesis.IntervalSlots {
				t.Fatalf("leases of %d slots", slots)
			}
			if committed += most; committed > j.Spec.Payment.Budget {
				t.Fatalf("%d is promised of a budget of %d", committed, j.Spec.Payment.Budget)
			}
		}
	})
}
