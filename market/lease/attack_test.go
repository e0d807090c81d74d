package lease_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// providerLimits are those of a provider of n units.
func providerLimits(n int) lease.Limits {
	l := testLimits()
	l.MaxHolds, l.MaxHoldsPerBuyer = 4*n, 2*n
	l.ActivateWithin, l.MarginSlots, l.StartWithin = 350, 25, 350
	return l
}

// leaseCost is what one unit costs for so many slots at the test's price.
func leaseCost(t testing.TB, slots uint64) market.Amount {
	t.Helper()
	rate, err := market.RateOf(45, 1, 400)
	if err != nil {
		t.Fatal(err)
	}
	cost, err := rate.Owed(slots)
	if err != nil || cost == 0 {
		t.Fatal(cost, err)
	}
	return cost
}

// takes has a key reserve and sign units one by one until it is refused, and returns for how many that was granted.
func takes(t testing.TB, book *lease.Book, now lease.Now, who sign.Private, order byte, n int, with lease.Backing, signs bool) (got int) {
	t.Helper()
	o := testOrder(who, order, uint32(n), 1)
	o.Slots, o.Expires = 1000, now.Time.Add(time.Minute)
	for i := range n {
		id := market.HoldID{order, byte(i + 1)}
		next, effects, err := book.Step(now, lease.ReserveRequested{Hold: id, Order: o, Price: 45, Rank: uint32(i), Backing: &with})
		if err != nil {
			t.Fatal(err)
		}
		*book = next
		held, ok := find[lease.AnswerHeld](effects)
		if !ok {
			return got
		}
		got++
		if !signs {
			continue
		}
		d := draft(o, held.Units, uint32(i), 45, now, byte(i+1))
		d.ActivateBefore = now.Slot + 350
		next, effects, _ = book.Step(now, signRequest(id, who, d))
		if _, ok := find[lease.AnswerSigned](effects); !ok {
			t.Fatal(effects)
		}
		*book = next
	}
	return got
}

func at(after time.Duration) lease.Now {
	return lease.Now{Time: epoch.Add(after), Slot: 1000 + market.Slot(after/(400*time.Millisecond))}
}

// Two messages a unit froze all units of a provider for 150 s, without a token of funds. Now a key gets what it can pay
// for, signed holds that it does not activate lapse in 30 s, and once that was seen all newcomers together have 40 % of
// the units.
func TestAttackFreeHolds(t *testing.T) {
	t.Parallel()
	const units = 10
	cost := leaseCost(t, 1000)
	book := lease.NewBook(testUnits(t, units), providerLimits(units))
	if got := takes(t, &book, at(0), buyers[0], 1, units, lease.Backing{Newcomer: true}, true); got != 0 {
		t.Errorf("a key without funds holds %d units", got)
	}
	if got := takes(t, &book, at(0), buyers[0], 1, units, lease.Backing{Funds: 3*cost - 1, Newcomer: true}, true); got != 2 {
		t.Errorf("a key that can pay for less than 3 units holds %d", got)
	}
	if got := takes(t, &book, at(0), buyers[0], 2, units, lease.Backing{Funds: 3*cost - 1, Newcomer: true}, true); got != 0 {
		t.Errorf("with another order the same key holds %d more", got)
	}
	book, effects, _ := book.Step(at(31*time.Second), lease.Ticked{})
	lapsed, ok := find[lease.Unpaid](effects)
	if !ok || !lapsed.Lapsed || !lapsed.Newcomer || lapsed.Peer != buyers[0].Key() {
		t.Errorf("after 31 s: %v", effects)
	}
	if n := book.Free("cpu"); n != units {
		t.Errorf("31 s after signed holds were not activated %d of %d units are free", n, units)
	}
	for i := range 1000 { // each can pay for all there are
		takes(t, &book, at(31*time.Second), sign.NewPrivate([32]byte{9, byte(i), byte(i >> 8)}), byte(i), units, lease.Backing{Funds: 1000 * cost, Newcomer: true, Wary: true}, false)
	}
	if n := book.Free("cpu"); n != units*6/10 {
		t.Errorf("a thousand newcomers leave %d of %d units", n, units)
	}
	if got := takes(t, &book, at(31*time.Second), buyers[1], 3, units*6/10, lease.Backing{Funds: 1000 * cost, Wary: true}, true); got != units*6/10 {
		t.Errorf("a peer that paid before gets %d units", got)
	}
}

// A lease whose funding was promised counts until that is on chain; what is taken for it meanwhile is not paid.
func TestAttackPromisedHolds(t *testing.T) {
	t.Parallel()
	cost := leaseCost(t, 1000)
	book := lease.NewBook(testUnits(t, 2), providerLimits(2))
	with := lease.Backing{Funds: cost}
	takes(t, &book, at(0), buyers[0], 1, 1, with, true)
	r, _ := book.Hold(market.HoldID{1, 1})
	book, _, _ = book.Step(at(0), lease.FundingPromised{Lease: r.Lease, Escrow: sign.Key{1}, Funding: []byte{1}, By: 1100})
	if got := takes(t, &book, at(0), buyers[0], 2, 1, with, false); got != 0 {
		t.Error("the same money is promised twice")
	}
	back, effects, _ := book.Step(at(20*time.Second), lease.ReleaseRequested{Lease: r.Lease, By: buyers[0].Key()})
	if u, ok := find[lease.Unpaid](effects); !ok || u.Lapsed || u.Held != 20*time.Second {
		t.Errorf("given back: %v", effects)
	}
	if got := takes(t, &back, at(20*time.Second), buyers[0], 2, 1, with, false); got != 1 {
		t.Error("what was given back counts still")
	}
	_, effects, _ = book.Step(at(41*time.Second), lease.Ticked{})
	if u, ok := find[lease.Unpaid](effects); !ok || !u.Lapsed {
		t.Errorf("never funded: %v", effects)
	}
	paid, _, _ := book.Step(at(time.Second), lease.FundingSeen{Lease: r.Lease, Landed: 1001})
	_, effects, _ = paid.Step(at(20*time.Second), lease.ReleaseRequested{Lease: r.Lease, By: buyers[0].Key()})
	if u, ok := find[lease.Unpaid](effects); ok {
		t.Errorf("paid for, and given back: %v", u)
	}
}

// churn takes and gives back n holds, and returns the book.
func churn(t testing.TB, book lease.Book, from, n int) lease.Book {
	o := testOrder(buyers[0], 1, 4, 1)
	o.Expires = epoch.Add(time.Hour)
	for i := from; i < from+n; i++ {
		var id market.HoldID
		binary.BigEndian.PutUint32(id[:], uint32(i)+1)
		next, effects, _ := book.Step(at(0), lease.ReserveRequested{Hold: id, Order: o, Price: 45})
		held, ok := find[lease.AnswerHeld](effects)
		if !ok {
			t.Fatal(i, effects)
		}
		if i%2 == 0 { // signed holds are no other
			next, _, _ = next.Step(at(0), signRequest(id, buyers[0], draft(o, held.Units, 0, 45, at(0), byte(i))))
		}
		book, _, _ = next.Step(at(0), lease.ReleaseRequested{Hold: id, By: buyers[0].Key()})
	}
	return book
}

// Each hold that was taken and given back stayed in the book for an hour, so that 8,000 of them made each step take
// milliseconds.
func TestAttackHoldChurn(t *testing.T) {
	t.Parallel()
	book := churn(t, lease.NewBook(testUnits(t, 4), providerLimits(4)), 0, 3000)
	for r := range book.Records() {
		t.Fatalf("hold %s is still in the book, %s", r.ID.Short(), r.State)
	}
	var last market.HoldID
	binary.BigEndian.PutUint32(last[:], 3000)
	_, effects, _ := book.Step(at(0), lease.ReserveRequested{Hold: last, Order: testOrder(buyers[0], 1, 4, 1), Price: 45})
	if no, ok := find[lease.AnswerRefused](effects); !ok || no.Refusal.Reason != market.ReasonHold {
		t.Errorf("a request for one that was given back: %v", effects)
	}
	late := market.HoldID{7, 7}
	book, _, _ = book.Step(at(0), lease.ReleaseRequested{Hold: late, By: buyers[0].Key()})
	_, effects, _ = book.Step(at(0), lease.ReserveRequested{Hold: late, Order: testOrder(buyers[0], 1, 4, 1), Price: 45})
	if _, ok := find[lease.AnswerHeld](effects); ok {
		t.Error("a request that comes after its release is granted")
	}
}

// What a hold that is taken and given back costs does not depend on how many were before.
func BenchmarkBookChurn(b *testing.B) {
	for _, before := range []int{0, 2000, 8000} {
		b.Run(fmt.Sprintf("after-%d", before), func(b *testing.B) {
			book := churn(b, lease.NewBook(testUnits(b, 4), providerLimits(4)), 0, before)
			b.ReportAllocs()
			b.ResetTimer()
			churn(b, book, before, b.N)
		})
	}
}
