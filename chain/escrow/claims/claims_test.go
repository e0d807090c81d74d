package claims_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// A provider claims what receipts cover and nothing that was paid ahead of them, however much time has passed. Claims
// reports all that was paid out, also if a claim was being sent when a final voucher for less arrived.
func TestClaimsWhatIsEarned(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 200, "buyer")
	v := l.voucher(1, 20, 0)
	l.keep(v, 199)
	l.pass(60, always)
	if got := l.paid(); got != 0 {
		t.Errorf("%d were claimed of what is paid ahead", got)
	}
	l.keep(v, 200)
	l.pass(10, never)
	if len(l.chain.Pool) == 0 {
		t.Fatal("no claim is under way")
	}
	l.keep(l.voucher(2, 0, verify.VoucherFinal), 200)
	l.pass(20, never)
	if over, _ := l.m.Over(); over {
		t.Error("settled while a claim is under way")
	}
	l.until("settled", 80, func() bool { over, _ := l.m.Over(); return over })
	settled, lost := l.ended()
	if len(settled) != 1 || len(lost) > 0 || settled[0].Paid != 200 || l.paid() != 200 {
		t.Errorf("settled %+v, lost %+v, the chain paid %d", settled, lost, l.paid())
	}
}

// Where several vouchers are paid ahead the best is not earned for long. What receipts cover is claimed all the same
// while work goes on, also after a restart.
func TestClaimsWhilePaidAhead(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 2000, "buyer")
	const ahead = 4
	for seq := uint64(1); seq <= 24; seq++ {
		earned := market.Amount(100 * (seq - min(seq, ahead)))
		v := verify.Voucher{Seq: seq, Cumulative: market.Amount(100 * seq), Horizon: l.core.Start + market.Slot(20*seq)}
		l.keep(escrowtest.Voucher(t, l.chain.Net, l.core, l.funding, v, l.keys, "buyer"), earned)
		if again := l.restore(); !bytes.Equal(again.Marshal(), l.m.Marshal()) {
			t.Fatal("restored another state")
		}
		l.pass(60, always)
		if got, least := l.paid(), earned-min(earned, ahead*100+when.Amount); got > earned || got < least {
			t.Errorf("after voucher %d %d are claimed of %d earned, want at least %d", seq, got, earned, least)
		}
	}
}

func TestVoucherRefused(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 100, "buyer")
	other := l.core
	other.Rank = 1
	sign := func(core market.LeaseCore, f escrow.Funding, cumulative market.Amount) verify.SignedVoucher {
		v := verify.Voucher{Seq: 1, Cumulative: cumulative}
		return escrowtest.Voucher(t, l.chain.Net, core, f, v, l.keys, "buyer")
	}
	for name, v := range map[string]verify.SignedVoucher{
		"other lease":  sign(other, l.funding, 10),
		"other escrow": sign(l.core, escrow.Funding{Opened: 1}, 10),
		"over the cap": sign(l.core, l.funding, 1001),
		"unsigned":     {Voucher: sign(l.core, l.funding, 10).Voucher},
	} {
		next, effects, err := l.m.Step(time.Unix(0, 0), escrow.VoucherKept{Voucher: v, Earned: 10})
		if !errors.Is(err, escrow.ErrVoucher) || len(effects) > 0 || !bytes.Equal(next.Marshal(), l.m.Marshal()) {
			t.Errorf("%s: %d effects, %v", name, len(effects), err)
		}
	}
	for _, ev := range []escrow.Event{escrow.End{}, escrow.Fund{}, escrow.Retire{}, escrow.Hired{}} {
		if _, _, err := l.m.Step(time.Unix(0, 0), ev); !errors.Is(err, escrow.ErrEvent) {
			t.Errorf("a provider's %T: %v", ev, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 100, "buyer")
	for name, c := range map[string]struct {
		change func(*escrow.Funding)
		keys   market.KeySet
		want   error
	}{
		"good":               {func(*escrow.Funding) {}, l.keys, nil},
		"other keys":         {func(*escrow.Funding) {}, escrowtest.KeySet(t, 1, "x"), escrow.ErrKeys},
		"leaf out of reach":  {func(f *escrow.Funding) { f.Index = 256 }, l.keys, escrow.ErrEvent},
		"last tranche":       {func(f *escrow.Funding) { f.Tranche = 1<<16 - 1 }, l.keys, escrow.ErrEvent},
		"a long path":        {func(f *escrow.Funding) { f.Proof = append(f.Proof, make([]tranche.Sibling, 8)...) }, l.keys, escrow.ErrEvent},
		"buyer and no order": {func(f *escrow.Funding) { f.Buyer = escrowtest.Key("x") }, l.keys, escrow.ErrEvent},
	} {
		f := l.funding
		f.Proof = slices.Clone(f.Proof)
		c.change(&f)
		m, err := claims.New(l.chain.Net, l.core, c.keys, f, when, escrowtest.Timing())
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || m.Lease() != l.core || m.Owed() != 0) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The first earned interval is claimed at once, which shows that claiming works. Later ones wait until enough is
// earned, or until enough slots have passed since the last claim.
func TestClaimsNowAndThen(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 1000, "buyer")
	l.pass(20, always)
	l.keep(l.voucher(1, 10, 0), 100)
	l.until("first claim", 20, func() bool { return l.paid() == 100 })
	l.pass(20, always)
	l.keep(l.voucher(2, 30, 0), 300)
	l.pass(15, always)
	if got := l.paid(); got != 100 || len(l.claimed) != 1 {
		t.Errorf("%d were paid by %d claims of 200 more: too few for a claim", got, len(l.claimed))
	}
	l.until("by time", 60, func() bool { return l.paid() == 300 })
	l.pass(10, always)
	l.keep(l.voucher(3, 60, 0), 600)
	l.until("by amount", 20, func() bool { return l.paid() == 600 })
	if len(l.claimed) != 3 {
		t.Errorf("%d claims", len(l.claimed))
	}
}

// At the end of the lease without a final voucher, the smallest voucher that covers the amount owed is claimed: more
// was only paid ahead.
func TestOverClaimsWhatIsOwed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owed, want market.Amount
		voucher    market.Amount // that is claimed with
	}{
		"between":          {350, 400, 400},
		"all":              {500, 500, 500},
		"less than ever":   {0, 0, 0},
		"more than signed": {900, 500, 500},
	} {
		l := begin(t, 2, 200, "buyer")
		l.pass(60, always)
		l.keep(l.voucher(1, 40, 0), 0)
		l.keep(l.voucher(2, 50, 0), 0)
		l.over(c.owed)
		l.until(name, 80, l.isOver)
		settled, lost := l.ended()
		if len(settled) != 1 || len(lost) > 0 || settled[0].Paid != c.want || l.paid() != c.want {
			t.Errorf("%s: settled %+v, lost %+v, paid %d", name, settled, lost, l.paid())
		}
		if c.voucher == 0 && len(l.claimed) > 0 || c.voucher > 0 && (len(l.claimed) != 1 || l.claimed[0].Cumulative != c.voucher) {
			t.Errorf("%s: claimed with %+v", name, l.claimed)
		}
	}
}

func (l *life) isOver() bool { over, _ := l.m.Over(); return over }

// A buyer takes the lease's money back: the newest voucher is claimed, earned or not, before the response slots are
// over, and the time that passes until then is paid too.
func TestRetiredClaimsTheNewest(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 400, "buyer")
	l.pass(20, always)
	l.keep(l.voucher(1, 10, 0), 100)
	l.until("first claim", 20, func() bool { return l.paid() == 100 })
	l.keep(l.voucher(2, 300, 0), 100)
	l.retire()
	l.pass(2, always)
	view, err := l.wallet.Look(t.Context(), l.at, []uint16{0}, escrow.Confirmed)
	if err != nil || !l.m.Retired(view) {
		t.Fatalf("retired: %v", err)
	}
	l.until("over", 80, l.isOver)
	worked := 10 * market.Amount(view.Tranches[0].Opened+uint64(view.Tranches[0].Leaves[0].Window)-uint64(l.core.Start))
	if got := l.paid(); got > worked || got < worked-10*escrowtest.Response/2 {
		t.Errorf("paid %d, the time until the last slot for claims is worth %d", got, worked)
	}
	_, lost := l.ended()
	if len(lost) != 1 || lost[0].Paid != l.paid() || lost[0].Owed != 3000 || lost[0].Unfunded {
		t.Errorf("lost %+v, paid %d", lost, l.paid())
	}
}

// After the escrow's deadline the newest voucher is claimed, since everything may go back soon.
func TestLateClaimsTheNewest(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 100, "buyer")
	l.keep(l.voucher(1, 50, 0), 0)
	l.pass(280, always)
	if got := l.paid(); got != 0 {
		t.Fatalf("%d were paid of nothing earned", got)
	}
	l.until("claimed", 60, func() bool { return l.paid() == 500 })
}

// A lease whose money never came on chain is lost after its activate-before slot, and never before a final view says so.
func TestNeverFunded(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 100, "buyer")
	f := l.funding
	f.Opened--
	var err error
	if l.m, err = claims.New(l.chain.Net, l.core, l.keys, f, when, escrowtest.Timing()); err != nil {
		t.Fatal(err)
	}
	for !l.isOver() && l.chain.Root < uint64(l.core.ActivateBefore)+10 {
		l.pass(1, always)
		if l.isOver() && l.chain.Root <= uint64(l.core.ActivateBefore) {
			t.Fatalf("given up in slot %d", l.chain.Root)
		}
	}
	if _, lost := l.ended(); len(lost) != 1 || !lost[0].Unfunded || lost[0].Owed != 0 || !l.m.Done() {
		t.Errorf("%+v, done %v", l.log, l.m.Done())
	}
}

// A claim on the largest tranche does not fit beside the opening of its payout's account, which therefore comes first,
// and once.
func TestAccountIsOpenedApart(t *testing.T) {
	t.Parallel()
	l := begin(t, 129, 200, "buyer")
	l.pass(30, always)
	l.keep(l.voucher(1, 20, 0), 200)
	l.until("claimed", 40, func() bool { return l.paid() == 200 })
	l.pass(40, always)
	l.keep(l.voucher(2, 60, verify.VoucherFinal), 600)
	l.until("settled", 60, l.isOver)
	if l.opened != 1 || l.paid() != 600 {
		t.Errorf("opened %d times, paid %d", l.opened, l.paid())
	}
}

// A fork takes away the opening of the payout's account and the claim after it. The account is opened first again: a
// claim that comes before it fails, which could be final only when the money has been taken back.
func TestForkedAccountIsOpenedFirst(t *testing.T) {
	t.Parallel()
	l := begin(t, 129, 200, "buyer")
	l.pass(30, always)
	l.keep(l.voucher(1, 20, verify.VoucherFinal), 200)
	confirmed := func() bool { return l.chain.Tip.Tranches[l.tranche()].Leaves[0].Paid == 200 }
	l.until("confirmed", 20, confirmed)
	l.chain.Fork(2, false)
	l.chain.Pool = nil
	l.pass(6, always)
	if !confirmed() || l.m.Reason() != "" {
		t.Errorf("confirmed %v, reason %q", confirmed(), l.m.Reason())
	}
	l.until("settled", 30, l.isOver)
	if l.opened != 1 || len(l.claimed) != 2 { // the first did not fit beside the opening
		t.Errorf("opened %d times, signed %d claims", l.opened, len(l.claimed))
	}
}

// Final events come again after a restart, once.
func TestEventsAreRepeated(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 200, "buyer")
	l.pass(40, always)
	l.keep(l.voucher(1, 30, verify.VoucherFinal), 300)
	l.until("settled", 60, l.isOver)
	before := len(l.log)
	l.m = l.restore()
	for range 3 {
		if err := l.event(escrow.Ticked{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []escrow.Effect{escrow.Paid{Lease: l.core.ID(), Cumulative: 300}, escrow.Settled{Lease: l.core.ID(), Paid: 300}}
	if got := l.log[before:]; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if next := l.m.Next(); !next.IsZero() {
		t.Errorf("it is over and ticks at %s", next)
	}
}

// Endpoints that lag behind their earlier answers change nothing: neither what is paid, nor what is claimed.
func TestOldViewsAreIgnored(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 300, "buyer")
	look := func() escrow.Event {
		return escrow.Do(t.Context(), l.wallet, escrow.Look{Escrow: l.at, Tranches: []uint16{0}})
	}
	old := look()
	l.pass(30, always)
	l.keep(l.voucher(1, 20, 0), 200)
	l.until("claimed", 40, func() bool { return l.m.Paid() == 200 })
	claimed, state := len(l.claimed), l.m.Marshal()
	if err := l.event(old); err != nil || !bytes.Equal(l.m.Marshal(), state) || len(l.claimed) != claimed {
		t.Errorf("an old view: %v, %d claims, before %d", err, len(l.claimed), claimed)
	}
	if err := l.event(escrow.Looked{Escrow: l.at, Err: chain.ErrDown.Error()}); err != nil || l.m.Reason() == "" {
		t.Errorf("no view: %v, waits for %q", err, l.m.Reason())
	}
	l.keep(l.voucher(2, 60, 0), 600)
	l.until("claimed again", 60, func() bool { return l.m.Paid() > 200 })
}

// The buyer's refund after deadline and margin ends it: what was not claimed is lost, and the reason says so.
func TestRefunded(t *testing.T) {
	t.Parallel()
	l := begin(t, 2, 100, "buyer")
	l.pass(20, always)
	l.keep(l.voucher(1, 90, 0), 900)
	l.wallet.Down = true
	l.pass(340, always)
	l.buyer(program.Refund{Escrow: l.at, Vault: account.VaultAddress(l.chain.Net.Program, l.at), Mint: l.chain.Net.Mint,
		Destination: svm.TokenAccount(escrowtest.Key("owner"), l.chain.Net.Mint), Network: l.chain.Net.Address()})
	l.pass(12, always)
	l.wallet.Down = false
	l.until("lost", 80, l.isOver)
	_, lost := l.ended()
	if len(lost) != 1 || lost[0].Owed != 900 || lost[0].Paid != 0 || lost[0].Reason != escrow.ErrRefunded.Error() {
		t.Errorf("%+v", l.log)
	}
}
