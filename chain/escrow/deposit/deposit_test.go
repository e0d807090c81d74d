package deposit_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// simple is a world in which the buyer signs the vouchers.
func simple(t escrowtest.T) *world {
	return newWorld(t, escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 1, "buyer"))
}

// A job from the first lease to the last lamport.
func TestWholeLife(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(2000, 5000, w.lease(60, 200), w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	a, b := w.leases[0], w.leases[1]
	w.until("funded", 20, func() bool { return a.claims != nil && b.claims != nil })
	w.voucher(a, 20)
	w.voucher(b, 20)
	w.pass(10, always)
	w.voucher(a, 20)
	w.until("early claim", 40, func() bool { return w.paid(a) == 200 })
	w.pass(20, always)
	w.voucher(b, 20)
	w.finish(b)
	w.until("settled", 40, func() bool { return b.settled != nil })
	w.retire(a)
	again := w.lease(60, 150)
	if err := w.fund(2000, 0, again); err != nil {
		t.Fatal(err)
	}
	c := w.leases[2]
	w.until("replaced", 20, func() bool { return c.claims != nil })
	w.voucher(c, 30)
	w.pass(30, always)
	w.finish(c)
	w.stop(a)
	w.end()
	w.until("closed", 400, func() bool { return w.closed })
	if a.settled == nil || b.settled == nil || c.settled == nil || w.s.Opens != 1 || w.s.Adds != 2 {
		t.Errorf("a %+v, b %+v, c %+v, %d openings, %d tranches", a.settled, b.settled, c.settled, w.s.Opens, w.s.Adds)
	}
	w.accounts()
	var last escrow.Effect
	for _, e := range w.log {
		last = e
	}
	if _, ok := last.(escrow.Closed); !ok {
		t.Errorf("the last thing told is %T", last)
	}
}

// Nothing was funded: there is nothing to end.
func TestEndOfNothing(t *testing.T) {
	t.Parallel()
	w := simple(t)
	w.end()
	if w.until("closed", 5, func() bool { return w.closed }); len(w.s.Made) > 0 {
		t.Error("something was signed")
	}
}

// What never reaches a block in time is void, and nothing is left of it; a second attempt opens another escrow once the first
// is certain never to be.
func TestVoidThenAnother(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(3000, 0, w.lease(30, 200)); err != nil {
		t.Fatal(err)
	}
	w.buyer.wallet.Lose = true
	w.pass(45, func() bool { return false })
	w.s.Pool = nil
	if !w.leases[0].void {
		t.Fatalf("not void at slot %d, activate before %d", w.s.Slot, w.leases[0].core.ActivateBefore)
	}
	w.buyer.wallet.Lose = false
	w.pass(100, func() bool { return false })
	w.s.Pool = nil
	if err := w.fund(3000, 0, w.lease(100, 200)); err != nil {
		t.Fatal(err)
	}
	w.until("funded", 90, func() bool { return w.leases[1].claims != nil })
	if len(w.s.Openings) != 2 {
		t.Errorf("openings of slots %d", w.s.Openings)
	}
	w.end()
	w.until("closed", 400, func() bool { return w.closed })
	w.accounts()
}

// A lease ends before its money is on chain, because the chain is slow and the work was short. Its provider is paid what the final
// receipt says; where that is nothing, nothing is sent any more.
func TestShortWorkIsFundedAfterItsEnd(t *testing.T) {
	t.Parallel()
	for _, owed := range []market.Amount{0, 50} {
		w := simple(t)
		w.buyer.wallet.Lose = true
		if err := w.fund(2000, 0, w.lease(60, 100), w.lease(60, 100)); err != nil {
			t.Fatal(err)
		}
		r := w.leases[0]
		w.pass(5, always)
		core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1,
			Lease: r.core.ID(), Seq: 1, Provider: r.core.Provider, Buyer: r.core.Buyer, From: r.core.Start,
			To: r.core.Start + market.Slot(owed/10), Cumulative: owed}
		sig, err := core.Sign(w.s.Net.Domain(), escrowtest.Private(r.by))
		if err != nil {
			t.Fatal(err)
		}
		r.receipt = &verify.Receipt{ReceiptCore: core, ProviderSig: sig}
		w.retire(r)
		w.end()
		w.pass(10, always)
		w.s.Pool = nil
		w.buyer.wallet.Lose = false
		if owed > 0 {
			w.until("funded", 40, func() bool { return r.claims != nil })
			closing := w.sign(r, verify.Voucher{Flags: verify.VoucherFinal, Seq: 1, Cumulative: owed, Horizon: core.To})
			r.closing, r.owed = &closing, owed
			w.keep(r, closing)
			w.until("claimed", 100, func() bool { return r.settled != nil })
		}
		w.until("closed", 400, func() bool { return w.closed })
		if w.s.Opens != min(int(owed), 1) || r.void != (owed == 0) {
			t.Errorf("owed %d: %d openings, void: %t", owed, w.s.Opens, r.void)
		}
		w.accounts()
	}
}

// A provider that does not claim what its final receipt left it has twice the response slots to do so; then all comes back, long before
// the deadline. One that is back in time is paid.
func TestLazyProvider(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]int{"for ever": 0, "back in time": escrowtest.Response + escrowtest.Response/2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := simple(t)
			if err := w.fund(1500, 0, w.lease(60, 200)); err != nil {
				t.Fatal(err)
			}
			r := w.leases[0]
			w.until("funded", 20, func() bool { return r.claims != nil })
			r.lazy = true
			w.voucher(r, 50)
			w.pass(50, always)
			r.claims.wallet.Down = true
			w.finish(r)
			ended := w.s.Slot
			w.end()
			if away > 0 {
				w.pass(away, always)
				r.lazy, r.claims.wallet.Down = false, false
			}
			w.until("closed", 1500, func() bool { return w.closed })
			if w.s.Slot >= 1500 || away == 0 && w.s.Slot <= ended+2*escrowtest.Response {
				t.Errorf("ended in slot %d, closed in slot %d", ended, w.s.Slot)
			}
			if got := w.paid(r); away == 0 && got != 0 || away > 0 && (got != r.owed || r.settled == nil) {
				t.Errorf("paid %d of %d", got, r.owed)
			}
			w.accounts()
		})
	}
}

// A buyer that was away until after deadline and margin takes all back at once, without any response slots.
func TestDeadline(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(1500, 0, w.lease(60, 200)); err != nil {
		t.Fatal(err)
	}
	w.until("funded", 20, func() bool { return w.leases[0].claims != nil })
	w.buyer.wallet.Down = true
	w.end()
	w.pass(1500+escrowtest.Margin-int(w.s.Slot), always)
	w.buyer.wallet.Down = false
	w.until("closed", 100, func() bool { return w.closed })
	w.accounts()
}

// Endpoints that answer nothing, as such that are busy, are asked more and more rarely what became of a transaction, and as often as
// ever when one answers again.
func TestBusyEndpointsAreSpared(t *testing.T) {
	t.Parallel()
	w := simple(t)
	w.buyer.wallet.Lose = true
	if err := w.fund(2000, 0, w.lease(60, 200)); err != nil {
		t.Fatal(err)
	}
	m, now := w.buyer.m, w.now
	asked := func(answer escrow.Pushed) (n int) {
		for range 96 {
			now = now.Add(escrowtest.Timing().PollEvery)
			events := []escrow.Event{escrow.Ticked{}}
			for len(events) > 0 {
				next, effects, err := m.Step(now, events[0])
				if err != nil {
					t.Fatal(err)
				}
				m, events = next, events[1:]
				for _, e := range effects {
					switch e := e.(type) {
					case escrow.Push:
						n++
						answer.No = e.No
						events = append(events, answer)
					case escrow.Look:
						events = append(events, escrow.Looked{Escrow: e.Escrow, Err: "busy"})
					}
				}
			}
		}
		return n
	}
	if n := asked(escrow.Pushed{Err: "busy"}); n == 0 || n > 96/8+3 {
		t.Errorf("asked %d times while they are busy", n)
	}
	if n := asked(escrow.Pushed{}); n < 96-8 {
		t.Errorf("asked %d times when they answer again", n)
	}
}

func TestFundRefuses(t *testing.T) {
	t.Parallel()
	w := simple(t)
	good := w.lease(60, 200)
	for name, c := range map[string]struct {
		change func(*market.LeaseCore)
		ev     escrow.Fund
		want   error
	}{
		"no leases":    {nil, escrow.Fund{Deadline: 2000}, escrow.ErrEvent},
		"other order":  {func(c *market.LeaseCore) { c.Order[0]++ }, escrow.Fund{Deadline: 2000}, escrow.ErrLease},
		"other buyer":  {func(c *market.LeaseCore) { c.Buyer = escrowtest.Key("x") }, escrow.Fund{Deadline: 2000}, escrow.ErrLease},
		"other keys":   {func(c *market.LeaseCore) { c.VoucherKeys[0]++ }, escrow.Fund{Deadline: 2000}, escrow.ErrLease},
		"malformed":    {func(c *market.LeaseCore) { c.Units = 0 }, escrow.Fund{Deadline: 2000}, escrow.ErrLease},
		"early":        {func(c *market.LeaseCore) {}, escrow.Fund{Deadline: good.End + escrowtest.Margin - 1}, escrow.ErrDeadline},
		"endless":      {func(c *market.LeaseCore) { c.Start, c.End = 1<<64-20, 1<<64-1 }, escrow.Fund{Deadline: 1<<64 - 1}, escrow.ErrDeadline},
		"too much":     {func(c *market.LeaseCore) { c.Cap = 1<<64 - 1 }, escrow.Fund{Deadline: 2000, Leases: []market.LeaseCore{good}}, market.ErrOverflow},
		"twice":        {func(c *market.LeaseCore) {}, escrow.Fund{Deadline: 2000, Leases: []market.LeaseCore{good}}, escrow.ErrLease},
		"far too many": {func(c *market.LeaseCore) {}, escrow.Fund{Deadline: 2000, Leases: make([]market.LeaseCore, 6*256)}, escrow.ErrTooMany},
	} {
		if ev := c.ev; c.change != nil {
			core := good
			c.change(&core)
			ev.Leases = append(ev.Leases, core)
			c.ev = ev
		}
		checkRefused(t, w.buyer.m, name, c.ev, c.want)
	}
	checkRefused(t, w.buyer.m, "voucher", escrow.LeaseOver{}, escrow.ErrEvent)
	checkRefused(t, w.buyer.m, "unknown lease", escrow.Retire{Leases: []escrow.Retired{{}}}, escrow.ErrLease)
	w.end()
	checkRefused(t, w.buyer.m, "ending", escrow.Fund{Deadline: 2000, Leases: []market.LeaseCore{good}}, escrow.ErrEnding)
}

// checkRefused asks that an event is refused with an error, and changes nothing.
func checkRefused(t *testing.T, d deposit.Deposit, name string, ev escrow.Event, want error) {
	t.Helper()
	next, effects, err := d.Step(time.Unix(0, 0), ev)
	if !errors.Is(err, want) || len(effects) > 0 || !bytes.Equal(next.Marshal(), d.Marshal()) {
		t.Errorf("%s: %d effects, %v, want %v", name, len(effects), err, want)
	}
}

// The voucher keys add a tranche for a standby while the buyer's own with the same number is under way: the buyer's takes the
// next, its tokens move once, and what the standby does not claim comes back after deadline and margin.
func TestNumberTaken(t *testing.T) {
	t.Parallel()
	w := simple(t)
	deal := w.buyer.m.Deal()
	deal.Standbys = []account.Standby{{Provider: escrowtest.Key("standby"), Payout: escrowtest.Key("standby"), MaxRate: 10 * market.RateScale, Budget: 1000}}
	d, err := deposit.New(w.s.Net, deal, escrowtest.Timing())
	if err != nil {
		t.Fatal(err)
	}
	w.buyer.m, w.buyer.journal = d, d.Marshal()
	if err := w.fund(1400, 3000, w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	w.until("funded", 20, func() bool { return w.leases[0].claims != nil })
	w.pass(escrowtest.Lag+2, always)
	w.buyer.wallet.Lose = true
	if err := w.fund(1400, 0, w.lease(100, 150)); err != nil {
		t.Fatal(err)
	}
	at, _ := w.buyer.m.Escrow()
	start := market.Slot(w.s.Slot)
	w.s.Inject(t, program.AddStandbyTranche{Payer: escrowtest.Key("guardian"), Escrow: at, Vault: account.VaultAddress(w.s.Net.Program, at), Signers: []sign.Key{escrowtest.Key("buyer")},
		Tranche: account.TrancheAddress(w.s.Net.Program, at, 1), Index: 1, Leaves: []program.StandbyLeaf{{Lease: market.LeaseID{7},
			Rate: market.RateScale, Cap: 1000, Start: start, End: start + 50}}})
	w.buyer.wallet.Lose = false
	w.until("funded by the next tranche", 60, func() bool { return w.leases[1].claims != nil })
	if f := w.leases[1].funding; f.Tranche != 2 {
		t.Errorf("funded in tranche %d", f.Tranche)
	}
	if e := w.s.Tip.Escrows[at]; e.Deposited != 3500 { // what was short, and nothing more
		t.Errorf("%d deposited", e.Deposited)
	}
	w.end()
	w.until("closed", 700, func() bool { return w.closed })
	if w.s.Slot <= 1400+escrowtest.Margin || w.s.TopUps != 1 {
		t.Errorf("closed at slot %d after %d top-ups", w.s.Slot, w.s.TopUps)
	}
	w.accounts()
}
