package deposit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// Of 300 leases in two tranches, one transaction sets the money aside. A claim on the largest tranche does not fit beside the
// opening of its payout's account, which therefore comes first.
func TestManyLeases(t *testing.T) {
	t.Parallel()
	w := simple(t)
	var cores []market.LeaseCore
	for range 300 {
		cores = append(cores, w.lease(60, 100))
	}
	if err := w.fund(2000, 0, cores...); err != nil {
		t.Fatal(err)
	}
	r := w.leases[0]
	w.until("funded", 20, func() bool { return r.claims != nil })
	if len(w.s.Made) != 1 || len(r.funding.Proof) != 8 || w.leases[299].funding.Tranche != 1 {
		t.Fatalf("%d transactions, path of %d", len(w.s.Made), len(r.funding.Proof))
	}
	for _, other := range w.leases[1:] {
		other.lazy = true
	}
	w.voucher(r, 10)
	w.until("claimed", 40, func() bool { return w.paid(r) == 100 })
	var finals []escrow.Retired
	for _, x := range w.leases {
		x.lazy = false
		w.finish(x)
		finals = append(finals, escrow.Retired{Lease: x.core.ID(), Final: x.receipt})
	}
	if err := w.buyer.tell(w.now, escrow.Retire{Leases: finals}); err != nil {
		t.Fatal(err)
	}
	w.end()
	w.until("closed", 600, func() bool { return w.closed })
	w.accounts()
}

// Vouchers by three guardians, for more leases than tranches hold from which claims fit by themselves: providers claim by lookup tables
// of their own, and have the rent back in the end.
func TestTables(t *testing.T) {
	t.Parallel()
	guardians := []string{"guardian 1", "guardian 2", "guardian 3"}
	w := newWorld(t, escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 3, guardians...), guardians...)
	var cores []market.LeaseCore
	for range 200 {
		cores = append(cores, w.lease(60, 300))
	}
	if err := w.fund(2000, 0, cores...); err != nil {
		t.Fatal(err)
	}
	a, b := w.leases[0], w.leases[1]
	for _, r := range w.leases {
		r.lazy = r != a && r != b
	}
	w.until("funded", 20, func() bool { return a.claims != nil && b.claims != nil })
	if len(a.funding.Proof) != 8 || a.funding.Tranche != w.leases[199].funding.Tranche {
		t.Fatalf("path of %d, tranches %d and %d", len(a.funding.Proof), a.funding.Tranche, w.leases[199].funding.Tranche)
	}
	w.until("tables made", 20, func() bool { return len(w.s.Tip.Tables) == 2 })
	w.voucher(a, 10)
	w.voucher(b, 10)
	w.until("claimed", 60, func() bool { return w.paid(a) == 100 && w.paid(b) == 100 })
	w.voucher(a, 20)
	a.claims.crash = -1
	w.until("claimed more", 200, func() bool { return w.paid(a) == 300 })
	w.finish(b)
	w.until("settled", 60, func() bool { return b.settled != nil })
	if b.claims.m.Done() || len(w.s.Tip.Tables) != 2 {
		t.Errorf("done before the table is closed: %d tables", len(w.s.Tip.Tables))
	}
	w.until("closed", svm.TableCooldown+200, func() bool { return b.claims.m.Done() })
	if w.s.Final.Rent[b.core.Provider] != 0 || len(w.s.Final.Tables) != 1 {
		t.Errorf("%d lamports of rent are left, and %d tables", w.s.Final.Rent[b.core.Provider], len(w.s.Final.Tables))
	}
}

// Only its provider's final receipt of the lease itself frees a leaf at once.
func TestReceiptRefused(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(2000, 0, w.lease(60, 100), w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	a := w.leases[0]
	w.until("funded", 20, func() bool { return a.claims != nil })
	w.buyer.wallet.Down = true
	w.voucher(a, 10)
	w.finish(a)
	for name, change := range map[string]func(*verify.Receipt){
		"not final":      func(r *verify.Receipt) { r.Flags = 0 },
		"other lease":    func(r *verify.Receipt) { r.Lease[0]++ },
		"other provider": func(r *verify.Receipt) { r.Provider = escrowtest.Key("x") },
		"not signed":     func(r *verify.Receipt) { r.Cumulative-- },
	} {
		receipt := *a.receipt
		change(&receipt)
		fresh := w.leases[1].core.ID()
		if name != "other lease" {
			fresh = a.core.ID()
		}
		d, err := deposit.Restore(w.unretired(t), w.s.Net, escrowtest.Timing())
		if err != nil {
			t.Fatal(err)
		}
		checkRefused(t, d, name, escrow.Retire{Leases: []escrow.Retired{{Lease: fresh, Final: &receipt}}}, escrow.ErrReceipt)
	}
}

// unretired is the journal of a deposit with the same leases, of which none is retired.
func (w *world) unretired(t *testing.T) []byte {
	t.Helper()
	other := simple(t)
	other.leases = w.leases
	other.buyer.wallet.Down = true
	if err := other.fund(2000, 0, w.leases[0].core, w.leases[1].core); err != nil {
		t.Fatal(err)
	}
	return other.buyer.journal
}

func FuzzDeposit(f *testing.F) {
	w := simple(f)
	if err := w.fund(2000, 7000, w.lease(60, 200), w.lease(60, 100)); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Add(w.buyer.journal)
	w.until("funded", 20, func() bool { return w.leases[0].claims != nil })
	w.finish(w.leases[0])
	w.retire(w.leases[1])
	f.Add(w.buyer.journal)
	w.end()
	f.Add(w.buyer.journal)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := deposit.Restore(b, w.s.Net, escrowtest.Timing())
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if string(d.Marshal()) != string(b) {
			t.Errorf("%x reads as what is written %x", b, d.Marshal())
		}
		for _, ev := range []escrow.Event{escrow.Ticked{}, escrow.Looked{Escrow: addressOf(d), Final: escrow.View{Slot: 1 << 40}, Confirmed: escrow.View{Slot: 1 << 40}}} {
			if d, _, err = d.Step(time.Unix(0, 0), ev); err != nil {
				t.Errorf("%T: %v", ev, err)
			}
		}
	})
}

func addressOf(d deposit.Deposit) (at [32]byte) {
	k, _ := d.Escrow()
	return k
}

// A deposit with all the leases that it takes, and hired ones beside them, is restored: the two have limits of their
// own.
func TestMostLeasesAreRestored(t *testing.T) {
	t.Parallel()
	w := simple(t)
	w.buyer.wallet.Down = true
	next := 0
	leases := func(n int) (out []market.LeaseCore) {
		for range n {
			core := escrowtest.Lease(0, w.keys, 1000, 1100, 1500)
			core.Rank = uint32(next)
			next++
			out = append(out, core)
		}
		return out
	}
	d, step := w.buyer.m, func(d deposit.Deposit, ev escrow.Event) (deposit.Deposit, error) {
		out, _, err := d.Step(w.now, ev)
		return out, err
	}
	var err error
	for total := 0; total < deposit.MaxLeases; {
		n := min(escrow.LeavesFit(w.keys)*6, deposit.MaxLeases-total)
		if d, err = step(d, escrow.Fund{Leases: leases(n), Deadline: 3000}); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if _, err = step(d, escrow.Fund{Leases: leases(1), Deadline: 3000}); !errors.Is(err, escrow.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	for hired := 0; hired < 256; hired += 4 {
		if d, err = step(d, escrow.Hired{Leases: leases(4)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = step(d, escrow.Hired{Leases: leases(1)}); !errors.Is(err, escrow.ErrTooMany) {
		t.Errorf("one more hired: %v", err)
	}
	again, err := deposit.Restore(d.Marshal(), w.s.Net, escrowtest.Timing())
	if err != nil || string(again.Marshal()) != string(d.Marshal()) {
		t.Errorf("restored: %v", err)
	}
}
