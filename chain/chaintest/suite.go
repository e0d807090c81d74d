package chaintest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Harness is one ledger under the conformance test.
type Harness struct {
	Ledger chain.Ledger
	Owner  sign.Key                        // whose tokens it pays: at least 1,000,000 base units
	Step   func(ctx context.Context) error // lets a few blocks pass
}

// TestLedger checks what chain.Ledger promises. Every subtest asks for a ledger of its own; they run in parallel.
func TestLedger(t *testing.T, open func(t *testing.T) Harness) {
	for name, test := range map[string]func(*testing.T, *bench){
		"Pays":           testPays,
		"PacksFromFront": testPacksFromFront,
		"SendTwice":      testSendTwice,
		"AnchorAlone":    testAnchorAlone,
		"Expires":        testExpires,
		"Insufficient":   testInsufficient,
		"Refuses":        testRefuses,
		"Settles":        testSettles,
		"Restarts":       testRestarts,
		"Cancelled":      testCancelled,
		"Blocks":         testBlocks,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			test(t, &bench{Harness: open(t), ctx: ctx})
		})
	}
}

type bench struct {
	Harness
	ctx context.Context
}

// RandomKey is a fresh key on the curve that nobody keeps the private half of.
func RandomKey() sign.Key {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	return sign.NewPrivate(seed).Key()
}

// payouts makes n payouts of 1, 2, 3… base units to fresh wallets.
func payouts(n int) []chain.Payout {
	out := make([]chain.Payout, n)
	for i := range out {
		out[i] = chain.Payout{To: RandomKey(), Amount: market.Amount(i + 1), Lease: market.LeaseID(RandomKey())}
	}
	return out
}

func memo(text string) []byte { return fmt.Appendf(nil, "%s %s", text, RandomKey().Short()) }

func (b *bench) balance(t *testing.T, owner sign.Key) market.Amount {
	t.Helper()
	amount, err := b.Ledger.Balance(b.ctx, owner)
	if err != nil {
		t.Fatalf("balance of %s: %v", owner, err)
	}
	return amount
}

func (b *bench) prepare(t *testing.T, p chain.Payment) chain.Prepared {
	t.Helper()
	tx, err := b.Ledger.Prepare(b.ctx, p)
	if err != nil {
		t.Fatalf("preparing: %v", err)
	}
	if tx.ID == "" || len(tx.Raw) == 0 || len(tx.Raw) > chain.MaxRaw || tx.LastValid == 0 {
		t.Fatalf("prepared %q, %d bytes, last valid %d", tx.ID, len(tx.Raw), tx.LastValid)
	}
	return tx
}

func (b *bench) send(t *testing.T, tx chain.Prepared) {
	t.Helper()
	if err := b.Ledger.Send(b.ctx, tx); err != nil {
		t.Fatalf("sending: %v", err)
	}
}

// until polls, letting blocks pass, until the transaction's state can change no more.
func (b *bench) until(t *testing.T, tx chain.Prepared, want chain.TxState) chain.TxStatus {
	t.Helper()
	for {
		status, err := b.Ledger.Status(b.ctx, tx)
		if err != nil {
			t.Fatalf("status: %v", err)
		}
		if status.State.Final() {
			if status.State != want {
				t.Fatalf("transaction is %v (%s), want %v", status.State, status.Err, want)
			}
			return status
		}
		b.step(t)
	}
}

func (b *bench) step(t *testing.T) {
	t.Helper()
	if err := b.Step(b.ctx); err != nil {
		t.Fatalf("waiting for blocks: %v", err)
	}
}

func testPays(t *testing.T, b *bench) {
	before, err := b.Ledger.Slot(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	outs := payouts(3)
	outs[2].To = outs[0].To // one provider, two leases
	if got := b.balance(t, outs[0].To); got != 0 {
		t.Fatalf("a fresh wallet holds %d", got)
	}
	had := b.balance(t, b.Owner)
	text := memo("pays")
	tx := b.prepare(t, chain.Payment{Payouts: outs, Memo: text})
	if tx.Count != 3 {
		t.Fatalf("%d of 3 payouts fit", tx.Count)
	}
	if status, err := b.Ledger.Status(b.ctx, tx); err != nil || status.State != chain.Unknown {
		t.Fatalf("before sending: %v, %v", status.State, err)
	}
	b.send(t, tx)
	status := b.until(t, tx, chain.Finalized)
	if status.Slot < tx.Since || status.Slot <= before || status.Err != "" {
		t.Errorf("landed in slot %d (%q), prepared at %d", status.Slot, status.Err, tx.Since)
	}
	if got := b.balance(t, outs[0].To); got != 4 {
		t.Errorf("first provider holds %d, want 4", got)
	}
	if got := b.balance(t, outs[1].To); got != 2 {
		t.Errorf("second provider holds %d, want 2", got)
	}
	if got := b.balance(t, b.Owner); got != had-6 {
		t.Errorf("owner holds %d, want %d", got, had-6)
	}
	got, slot, err := b.Ledger.Memo(b.ctx, tx.ID)
	if err != nil || !bytes.Equal(got, text) || slot != status.Slot {
		t.Errorf("memo %q in slot %d, %v; want %q in %d", got, slot, err, text, status.Slot)
	}
}

func testPacksFromFront(t *testing.T, b *bench) {
	outs := payouts(30)
	var txs []chain.Prepared
	for rest := outs; len(rest) > 0; {
		tx := b.prepare(t, chain.Payment{Payouts: rest, Memo: memo("pack")})
		if tx.Count < 1 || tx.Count > len(rest) {
			t.Fatalf("%d of %d payouts fit", tx.Count, len(rest))
		}
		b.send(t, tx)
		txs, rest = append(txs, tx), rest[tx.Count:]
	}
	if len(txs) < 2 || len(txs) > 10 {
		t.Errorf("30 payouts took %d transactions", len(txs))
	}
	for _, tx := range txs {
		b.until(t, tx, chain.Finalized)
	}
	for i, p := range outs {
		if got := b.balance(t, p.To); got != p.Amount {
			t.Errorf("payout %d arrived as %d, want %d", i, got, p.Amount)
		}
	}
}

func testSendTwice(t *testing.T, b *bench) {
	outs := payouts(1)
	tx := b.prepare(t, chain.Payment{Payouts: outs, Memo: memo("twice")})
	b.send(t, tx)
	b.send(t, tx)
	b.step(t)
	b.send(t, tx)
	b.until(t, tx, chain.Finalized)
	b.send(t, tx)
	b.step(t)
	if got := b.balance(t, outs[0].To); got != 1 {
		t.Errorf("sent four times, %d arrived, want 1", got)
	}
	other := b.prepare(t, chain.Payment{Payouts: outs, Memo: memo("again")})
	if other.ID == tx.ID {
		t.Error("payments with different memos are one transaction")
	}
}

func testAnchorAlone(t *testing.T, b *bench) {
	for _, of := range []chain.Of{chain.OfReceipts, chain.OfRecords} {
		testAnchorOf(t, b, of)
	}
}

func testAnchorOf(t *testing.T, b *bench, of chain.Of) {
	leaves := []sign.Hash{sign.Sum([]byte("one")), sign.Sum([]byte("two")), sign.Sum([]byte("three"))}
	anchor := chain.Anchor{Of: of, Root: chain.RootOf(leaves), Count: 3}
	copy(anchor.Ref[:], RandomKey().Short())
	tx := b.prepare(t, chain.Payment{Memo: anchor.Memo()})
	if _, _, err := b.Ledger.Memo(b.ctx, tx.ID); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("memo before sending: %v, want ErrNotFound", err)
	}
	b.send(t, tx)
	b.until(t, tx, chain.Finalized)
	text, slot, err := b.Ledger.Memo(b.ctx, tx.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := chain.ParseAnchor(text); err != nil || got != anchor {
		t.Errorf("anchor %q: %v", text, err)
	}
	for i, leaf := range leaves {
		if err := chain.Include(anchor, leaves, i, tx.ID, slot).CheckOn(b.ctx, b.Ledger, leaf); err != nil {
			t.Errorf("number %d of the %s: %v", i, of, err)
		}
	}
}

func testExpires(t *testing.T, b *bench) {
	outs := payouts(1)
	tx := b.prepare(t, chain.Payment{Payouts: outs, Memo: memo("expires")})
	b.until(t, tx, chain.Expired)
	_ = b.Ledger.Send(b.ctx, tx) // refused or ignored, either is right
	for range 3 {
		b.step(t)
	}
	if status, err := b.Ledger.Status(b.ctx, tx); err != nil || status.State != chain.Expired {
		t.Errorf("after sending an expired transaction: %v, %v", status.State, err)
	}
	if got := b.balance(t, outs[0].To); got != 0 {
		t.Errorf("an expired transaction paid %d", got)
	}
}

func testInsufficient(t *testing.T, b *bench) {
	outs := payouts(1)
	outs[0].Amount = b.balance(t, b.Owner) + 1
	if _, err := b.Ledger.Prepare(b.ctx, chain.Payment{Payouts: outs}); !errors.Is(err, chain.ErrAllowance) {
		t.Errorf("paying more than there is: %v, want ErrAllowance", err)
	}
}

func testRefuses(t *testing.T, b *bench) {
	zero, nobody := payouts(1), payouts(1)
	zero[0].Amount = 0
	nobody[0].To = sign.Key{}
	for name, p := range map[string]chain.Payment{
		"nothing":     {},
		"zero amount": {Payouts: zero},
		"nobody":      {Payouts: nobody},
		"long memo":   {Payouts: payouts(1), Memo: bytes.Repeat([]byte("x"), chain.MaxMemo+1)},
		"binary memo": {Payouts: payouts(1), Memo: []byte{0xff}},
	} {
		if _, err := b.Ledger.Prepare(b.ctx, p); !errors.Is(err, chain.ErrPayment) {
			t.Errorf("%s: %v, want ErrPayment", name, err)
		}
	}
	tx := b.prepare(t, chain.Payment{Memo: memo("damaged")})
	tx.Raw = tx.Raw[:len(tx.Raw)/2]
	if err := b.Ledger.Send(b.ctx, tx); err == nil {
		t.Error("half a transaction was taken")
	}
	if _, _, err := b.Ledger.Memo(b.ctx, "nonsense"); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("memo of nonsense: %v, want ErrNotFound", err)
	}
}

// settle drives a settlement to its end, each step at a time later than all it waits for.
func (b *bench) settle(t *testing.T, s chain.Settlement, save func([]byte) error, ev chain.Event) chain.Settlement {
	t.Helper()
	now := time.Unix(1, 0)
	for {
		next, _, err := chain.Drive(b.ctx, b.Ledger, save, s, now, ev)
		if err != nil {
			t.Fatalf("settling: %v", err)
		}
		if next.Done() {
			return next
		}
		s, ev, now = next, chain.Ticked{}, now.Add(time.Hour)
		b.step(t)
	}
}

func owedOf(outs []chain.Payout) chain.AmountsOwed {
	ev := chain.AmountsOwed{Root: sign.Sum([]byte("receipts")), Receipts: 3}
	for _, p := range outs {
		ev.Owed = append(ev.Owed, chain.Owed{Lease: p.Lease, To: p.To, Cumulative: p.Amount})
	}
	return ev
}

func testSettles(t *testing.T, b *bench) {
	had, outs := b.balance(t, b.Owner), payouts(12)
	save := func([]byte) error { return nil }
	s := b.settle(t, chain.New(sign.Hash(RandomKey()), chain.DefaultParams()), save, owedOf(outs))
	more := owedOf(outs[:2])
	more.Owed[0].Cumulative += 100
	s = b.settle(t, s, save, more)
	want := had - 12*13/2 - 100
	if got := b.balance(t, b.Owner); got != want {
		t.Errorf("owner holds %d, want %d", got, want)
	}
	if got := b.balance(t, outs[0].To); got != 101 {
		t.Errorf("first provider holds %d, want 101", got)
	}
	for _, batch := range s.History() {
		text, slot, err := b.Ledger.Memo(b.ctx, batch.Tx.ID)
		if err != nil || slot != batch.Slot {
			t.Fatalf("memo of batch %d: slot %d, %v", batch.No, slot, err)
		}
		if got, err := chain.ParseAnchor(text); err != nil || got != batch.Anchor {
			t.Errorf("anchor of batch %d is %q: %v", batch.No, text, err)
		}
	}
}

// testRestarts loses the machine at each save in turn, before and after the save took effect.
func testRestarts(t *testing.T, b *bench) {
	had, outs := b.balance(t, b.Owner), payouts(5)
	crash := errors.New("crash")
	id := sign.Hash(RandomKey())
	var journal []byte
	ev := chain.Event(owedOf(outs))
	for at := range 8 {
		s := chain.New(id, chain.DefaultParams())
		if journal != nil {
			var err error
			if s, err = chain.Restore(journal, chain.DefaultParams()); err != nil {
				t.Fatal(err)
			}
		}
		saves := 0
		_, _, err := chain.Drive(b.ctx, b.Ledger, func(state []byte) error {
			if saves++; at%2 == 1 || saves <= at/4 {
				journal = state
			}
			if saves > at/4 {
				return crash
			}
			return nil
		}, s, time.Unix(1, 0), ev)
		if err != nil && !errors.Is(err, crash) {
			t.Fatal(err)
		}
	}
	s, err := chain.Restore(journal, chain.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	b.settle(t, s, func([]byte) error { return nil }, ev)
	if got := b.balance(t, b.Owner); got != had-15 {
		t.Errorf("owner holds %d, want %d", got, had-15)
	}
	for i, p := range outs {
		if got := b.balance(t, p.To); got != p.Amount {
			t.Errorf("payout %d arrived as %d, want %d", i, got, p.Amount)
		}
	}
}

func testCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Ledger.Slot(ctx); err == nil {
		t.Error("Slot answered a cancelled call")
	}
	if _, err := b.Ledger.Prepare(ctx, chain.Payment{Memo: memo("cancelled")}); err == nil {
		t.Error("Prepare answered a cancelled call")
	}
}
