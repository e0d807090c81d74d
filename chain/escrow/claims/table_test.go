package claims_test

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

var guardians = []string{"a", "b", "c", "d", "e"}

// With five keys no claim fits without a lookup table. It is made before there is anything to claim, is claimed by, and
// its rent is back when the lease is over.
func TestTableLife(t *testing.T) {
	t.Parallel()
	l := begin(t, 4, 200, guardians...)
	l.until("made", 20, func() bool { return len(l.chain.Final.Tables) == 1 })
	l.keep(l.voucher(1, 10, 0), 100)
	l.until("claimed", 40, func() bool { return l.paid() == 100 })
	l.keep(l.voucher(2, 40, verify.VoucherFinal), 400)
	l.until("settled", 60, l.isOver)
	if l.m.Done() || l.m.Next().IsZero() {
		t.Error("done with a table on chain")
	}
	l.until("waiting", 60, func() bool { return strings.Contains(l.m.Reason(), "lookup table: closable after slot") })
	l.until("done", svm.TableCooldown+100, func() bool { return l.m.Done() })
	if l.chain.Final.Rent[l.core.Provider] != 0 || len(l.chain.Final.Tables) != 0 {
		t.Errorf("%d lamports of rent are left, and %d tables", l.chain.Final.Rent[l.core.Provider], len(l.chain.Final.Tables))
	}
	if settled, lost := l.ended(); len(settled) != 1 || len(lost) > 0 {
		t.Errorf("%+v", l.log)
	}
}

// A table whose transaction was lost is made anew, at another address; a restart in between makes no second one.
func TestTableIsLost(t *testing.T) {
	t.Parallel()
	l := begin(t, 4, 400, guardians...)
	l.wallet.Lose = true
	l.pass(20, always)
	l.wallet.Lose = false
	l.m = l.restore()
	l.tick = true
	l.until("made", 80, func() bool { return len(l.chain.Final.Tables) == 1 })
	l.pass(60, always)
	if len(l.chain.Final.Tables) != 1 {
		t.Errorf("%d tables", len(l.chain.Final.Tables))
	}
}

// answering steps the machine with answers of the test's instead of the chain's, which no transaction reaches.
type answering struct {
	*life
	look escrow.Looked
}

// step answers each effect until none is left; sign and status answer for transactions.
func (a *answering) run(ev escrow.Event, sign func(escrow.SignOrder) escrow.SignResult, status func(escrow.Push) escrow.Pushed) {
	a.t.Helper()
	for events := []escrow.Event{ev}; len(events) > 0; events = events[1:] {
		next, effects, err := a.m.Step(a.now, events[0])
		if err != nil {
			a.t.Fatalf("%T: %v", events[0], err)
		}
		a.m = next
		for _, e := range effects {
			switch e := e.(type) {
			case escrow.Persist:
				a.journal = e.State
			case escrow.Sign:
				var out escrow.Signed
				for _, o := range e.Orders {
					out.Results = append(out.Results, sign(o))
				}
				events = append(events, out)
			case escrow.Push:
				events = append(events, status(e))
			case escrow.Look:
				events = append(events, a.look)
			}
		}
	}
}

// overWithTable is a lease that is over with a table that is made.
func overWithTable(t *testing.T) *answering {
	l := begin(t, 4, 200, guardians...)
	l.until("made", 20, func() bool { return len(l.chain.Final.Tables) == 1 })
	l.pass(30, always)
	l.keep(l.voucher(1, 0, verify.VoucherFinal), 0)
	l.until("settled", 60, l.isOver)
	view, err := l.wallet.Look(t.Context(), l.at, []uint16{0}, escrow.Finalized)
	if err != nil || l.m.Done() {
		t.Fatalf("%v, done %v", err, l.m.Done())
	}
	return &answering{life: l, look: escrow.Looked{Escrow: l.at, Confirmed: view, Final: view}}
}

// A table that cannot be closed is given up after a dozen failures: somebody else closed it with the provider's key.
func TestTableIsGivenUp(t *testing.T) {
	t.Parallel()
	a := overWithTable(t)
	asked := 0
	refuse := func(o escrow.SignOrder) escrow.SignResult {
		asked++
		return escrow.SignResult{No: o.No, Err: "no such account"}
	}
	for range 200 {
		if a.m.Done() {
			break
		}
		a.now = a.now.Add(64 * escrowtest.SlotTime)
		a.look.Final.Slot += 700
		a.look.Confirmed.Slot = a.look.Final.Slot
		a.run(escrow.Ticked{}, refuse, nil)
	}
	if !a.m.Done() || asked < 12 || asked > 30 {
		t.Errorf("done %v after %d attempts", a.m.Done(), asked)
	}
}

// A claim whose outcome no endpoint remembers is neither forgotten nor made twice at once: the leaf shows it.
func TestForgottenClaim(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 200, "buyer")
	l.pass(30, always)
	view, err := l.wallet.Look(t.Context(), l.at, []uint16{0}, escrow.Finalized)
	if err != nil {
		t.Fatal(err)
	}
	a := &answering{life: l, look: escrow.Looked{Escrow: l.at, Confirmed: view, Final: view}}
	under, signed := 0, 0
	sign := func(o escrow.SignOrder) escrow.SignResult {
		under++
		signed++
		if under > 1 {
			t.Fatal("two claims at once")
		}
		return escrow.SignResult{No: o.No, Tx: chain.Prepared{ID: chain.TxID(string(rune('a' + signed))), Raw: []byte{1}}}
	}
	forget := func(p escrow.Push) escrow.Pushed {
		under--
		return escrow.Pushed{No: p.No, Err: chain.ErrHistory.Error(), Gone: true}
	}
	a.run(escrow.VoucherKept{Voucher: l.voucher(1, 20, verify.VoucherFinal), Earned: 200}, sign, forget)
	for range 3 {
		a.now = a.now.Add(100 * escrowtest.SlotTime)
		a.run(escrow.Ticked{}, sign, forget)
	}
	if signed < 2 || a.isOver() {
		t.Fatalf("%d claims, over %v", signed, a.isOver())
	}
	paid := a.look
	tr := paid.Final.Tranches[0]
	tr.Leaves = append([]account.LeafState{{Paid: 200}}, tr.Leaves[1:]...)
	paid.Final.Tranches = map[uint16]account.Tranche{0: tr}
	paid.Confirmed = paid.Final
	a.look = paid
	a.now = a.now.Add(100 * escrowtest.SlotTime)
	a.run(escrow.Ticked{}, sign, forget)
	if !a.isOver() || a.m.Paid() != market.Amount(200) {
		t.Errorf("over %v, paid %d", a.isOver(), a.m.Paid())
	}
}
