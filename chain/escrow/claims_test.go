package escrow_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
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
	if len(w.s.signed) != 1 || len(r.funding.Proof) != 8 || w.leases[299].funding.Tranche != 1 {
		t.Fatalf("%d transactions, path of %d", len(w.s.signed), len(r.funding.Proof))
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
	w := newWorld(t, network(t), keySet(t, 3, guardians...), guardians...)
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
	w.until("tables made", 20, func() bool { return len(w.s.tip.Tables) == 2 })
	w.voucher(a, 10)
	w.voucher(b, 10)
	w.until("claimed", 60, func() bool { return w.paid(a) == 100 && w.paid(b) == 100 })
	w.voucher(a, 20)
	a.claims.crash = -1
	w.until("claimed more", 200, func() bool { return w.paid(a) == 300 })
	w.finish(b)
	w.until("settled", 60, func() bool { return b.settled != nil })
	if b.claims.m.Done() || len(w.s.tip.Tables) != 2 {
		t.Errorf("done before the table is closed: %d tables", len(w.s.tip.Tables))
	}
	w.until("closed", program.TableCooldown+200, func() bool { return b.claims.m.Done() })
	if w.s.final.Rent[b.core.Provider] != 0 || len(w.s.final.Tables) != 1 {
		t.Errorf("%d lamports of rent are left, and %d tables", w.s.final.Rent[b.core.Provider], len(w.s.final.Tables))
	}
}

// A provider claims what receipts cover and nothing that was paid ahead of them, however much time has passed. Claims reports all that was
// paid out, also if a claim was being sent when a final voucher for less arrived.
func TestClaimsWhatIsEarned(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(2000, 0, w.lease(60, 200)); err != nil {
		t.Fatal(err)
	}
	a := w.leases[0]
	w.until("funded", 20, func() bool { return a.claims != nil })
	tell := func(ev escrow.Event) {
		if err := a.claims.tell(w.now, ev); err != nil {
			t.Fatal(err)
		}
	}
	v := w.sign(a, verify.Voucher{Seq: 1, Cumulative: 200, Horizon: a.core.Start + 20})
	tell(escrow.VoucherKept{Voucher: v, Earned: 199})
	w.pass(60, always)
	if got := w.paid(a); got != 0 {
		t.Errorf("%d were claimed of what is paid ahead", got)
	}
	tell(escrow.VoucherKept{Voucher: v, Earned: 200})
	never := func() bool { return false }
	for range 10 {
		w.pass(1, never)
	}
	if len(w.s.pool) == 0 {
		t.Fatal("no claim is under way")
	}
	tell(escrow.VoucherKept{Voucher: w.sign(a, verify.Voucher{Flags: verify.VoucherFinal, Seq: 2, Horizon: a.core.Start})})
	w.pass(20, never)
	if a.settled != nil {
		t.Error("settled while a claim is under way")
	}
	w.until("settled", 80, func() bool { return a.settled != nil })
	if a.settled.Paid != 200 || w.paid(a) != 200 {
		t.Errorf("it says that %d were paid, the chain %d", a.settled.Paid, w.paid(a))
	}
}

// Where several vouchers are paid ahead the best is not earned for long. What receipts cover is claimed all the same while work goes on,
// also after a restart.
func TestClaimsWhilePaidAhead(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(6000, 0, w.lease(60, 2000)); err != nil {
		t.Fatal(err)
	}
	a := w.leases[0]
	w.until("funded", 20, func() bool { return a.claims != nil })
	const ahead = 4
	when := escrow.When{Amount: 300, Slots: 60}
	for seq := uint64(1); seq <= 24; seq++ {
		earned := market.Amount(100 * (seq - min(seq, ahead)))
		v := w.sign(a, verify.Voucher{Seq: seq, Cumulative: market.Amount(100 * seq), Horizon: a.core.Start + market.Slot(20*seq)})
		if err := a.claims.tell(w.now, escrow.VoucherKept{Voucher: v, Earned: earned}); err != nil {
			t.Fatal(err)
		}
		again, err := escrow.RestoreClaims(a.claims.m.Marshal(), w.s.net, when, timing())
		if err != nil || !bytes.Equal(again.Marshal(), a.claims.m.Marshal()) {
			t.Fatalf("restored: %v", err)
		}
		w.pass(60, always)
		if got, least := w.paid(a), earned-min(earned, ahead*100+when.Amount); got > earned || got < least {
			t.Errorf("after voucher %d %d are claimed of %d earned, want at least %d", seq, got, earned, least)
		}
	}
}

// What fits into a transaction: the largest path by the number of keys, without a table and with one.
func TestClaimsFit(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	for n, leaves := range []int{256, 256, 256, 32, 4} {
		if got := escrow.LeavesFit(keySet(t, uint8(n+1), names...)); got != leaves {
			t.Errorf("%d keys: %d leaves, want %d", n+1, got, leaves)
		}
	}
}

func TestVoucherRefused(t *testing.T) {
	t.Parallel()
	w := simple(t)
	if err := w.fund(2000, 0, w.lease(60, 100), w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	a, b := w.leases[0], w.leases[1]
	w.until("funded", 20, func() bool { return a.claims != nil && b.claims != nil })
	elsewhere := *a
	elsewhere.funding = &escrow.Funding{Opened: 1}
	for name, v := range map[string]verify.SignedVoucher{
		"other lease":  w.sign(b, verify.Voucher{Seq: 1, Cumulative: 10}),
		"other escrow": w.sign(&elsewhere, verify.Voucher{Seq: 1, Cumulative: 10}),
		"over the cap": w.sign(a, verify.Voucher{Seq: 1, Cumulative: 1001}),
		"unsigned":     {Voucher: w.sign(a, verify.Voucher{Seq: 1, Cumulative: 10}).Voucher},
	} {
		next, effects, err := a.claims.m.Step(time.Unix(0, 0), escrow.VoucherKept{Voucher: v})
		if !errors.Is(err, escrow.ErrVoucher) || len(effects) > 0 || string(next.Marshal()) != string(a.claims.m.Marshal()) {
			t.Errorf("%s: %d effects, %v", name, len(effects), err)
		}
	}
	if _, _, err := a.claims.m.Step(time.Unix(0, 0), escrow.End{}); !errors.Is(err, escrow.ErrEvent) {
		t.Errorf("a provider ends: %v", err)
	}
	if _, err := escrow.NewClaims(w.s.net, a.core, keySet(t, 1, "x"), *a.funding, escrow.When{}, timing()); !errors.Is(err, escrow.ErrKeys) {
		t.Errorf("other keys: %v", err)
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
	w.buyer.wallet.down = true
	w.voucher(a, 10)
	w.finish(a)
	for name, change := range map[string]func(*verify.Receipt){
		"not final":      func(r *verify.Receipt) { r.Flags = 0 },
		"other lease":    func(r *verify.Receipt) { r.Lease[0]++ },
		"other provider": func(r *verify.Receipt) { r.Provider = key("x") },
		"not signed":     func(r *verify.Receipt) { r.Cumulative-- },
	} {
		receipt := *a.receipt
		change(&receipt)
		fresh := w.leases[1].core.ID()
		if name != "other lease" {
			fresh = a.core.ID()
		}
		d, err := escrow.RestoreDeposit(w.unretired(t), w.s.net, timing())
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
	other.buyer.wallet.down = true
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
		d, err := escrow.RestoreDeposit(b, w.s.net, timing())
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

func addressOf(d escrow.Deposit) (at [32]byte) {
	k, _ := d.Escrow()
	return k
}

func FuzzClaims(f *testing.F) {
	w := simple(f)
	if err := w.fund(2000, 7000, w.lease(60, 200), w.lease(60, 100)); err != nil {
		f.Fatal(err)
	}
	r := w.leases[0]
	w.until("funded", 20, func() bool { return r.claims != nil })
	f.Add([]byte{})
	f.Add(r.claims.journal)
	w.voucher(r, 5)
	w.pass(3, always)
	w.voucher(r, 5)
	w.pass(3, always)
	f.Add(r.claims.journal)
	w.finish(r)
	f.Add(r.claims.journal)
	w.until("settled", 60, func() bool { return r.settled != nil })
	f.Add(r.claims.journal)
	guardians := []string{"a", "b", "c", "d", "e"}
	x := newWorld(f, network(f), keySet(f, 5, guardians...), guardians...)
	if err := x.fund(2000, 0, x.lease(100, 300)); err != nil {
		f.Fatal(err)
	}
	r = x.leases[0]
	x.until("table made", 100, func() bool { return len(x.s.tip.Tables) == 1 })
	f.Add(r.claims.journal)
	x.finish(r)
	x.until("settled", 100, func() bool { return r.settled != nil })
	f.Add(r.claims.journal)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := escrow.RestoreClaims(b, w.s.net, escrow.When{Amount: 1}, timing())
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if string(c.Marshal()) != string(b) {
			t.Errorf("%x reads as what is written %x", b, c.Marshal())
		}
		if _, _, err := c.Step(time.Unix(0, 0), escrow.Ticked{}); err != nil {
			t.Error(err)
		}
	})
}
