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
	"github.com/starling-network/starling/market/sign"
)

// Harness is one ledger under the conformance test.
type Harness struct {
	Ledger interface {
		chain.Ledger
		chain.MemoLedger
		chain.Blocks
	}
	Step func(ctx context.Context) error // lets a few blocks pass
}

// TestLedger checks the contracts of chain.Ledger, chain.MemoLedger and chain.Blocks. Every subtest opens its own
// ledger; they run in parallel.
func TestLedger(t *testing.T, open func(t *testing.T) Harness) {
	for name, test := range map[string]func(*testing.T, *bench){
		"Memo":      testMemo,
		"SendTwice": testSendTwice,
		"Anchor":    testAnchor,
		"Expires":   testExpires,
		"Refuses":   testRefuses,
		"Nobody":    testNobody,
		"Cancelled": testCancelled,
		"Blocks":    testBlocks,
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

// RandomKey returns a fresh key on the curve. Its private half is discarded.
func RandomKey() sign.Key {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	return sign.NewPrivate(seed).Key()
}

func memo(text string) []byte { return fmt.Appendf(nil, "%s %s", text, RandomKey().Short()) }

func (b *bench) sign(t *testing.T, memo []byte) chain.Prepared {
	t.Helper()
	tx, err := b.Ledger.SignMemo(b.ctx, memo)
	if err != nil {
		t.Fatalf("signing: %v", err)
	}
	if tx.ID == "" || len(tx.Raw) == 0 || len(tx.Raw) > chain.MaxRaw || tx.LastValid == 0 {
		t.Fatalf("signed %q, %d bytes, last valid %d", tx.ID, len(tx.Raw), tx.LastValid)
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

func testMemo(t *testing.T, b *bench) {
	before, err := b.Ledger.Slot(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	text := memo("seen")
	tx := b.sign(t, text)
	if status, err := b.Ledger.Status(b.ctx, tx); err != nil || status.State != chain.Unknown {
		t.Fatalf("before sending: %v, %v", status.State, err)
	}
	b.send(t, tx)
	status := b.until(t, tx, chain.Finalized)
	if status.Slot < tx.Since || status.Slot <= before || status.Err != "" {
		t.Errorf("landed in slot %d (%q), signed at %d", status.Slot, status.Err, tx.Since)
	}
	got, slot, err := b.Ledger.Memo(b.ctx, tx.ID)
	if err != nil || !bytes.Equal(got, text) || slot != status.Slot {
		t.Errorf("memo %q in slot %d, %v; want %q in %d", got, slot, err, text, status.Slot)
	}
}

func testSendTwice(t *testing.T, b *bench) {
	tx := b.sign(t, memo("twice"))
	b.send(t, tx)
	b.send(t, tx)
	b.step(t)
	b.send(t, tx)
	first := b.until(t, tx, chain.Finalized)
	b.send(t, tx)
	b.step(t)
	if again, err := b.Ledger.Status(b.ctx, tx); err != nil || again != first {
		t.Errorf("sent four times: %+v, then %+v, %v", first, again, err)
	}
	if other := b.sign(t, memo("again")); other.ID == tx.ID {
		t.Error("transactions with different memos are one")
	}
}

func testNobody(t *testing.T, b *bench) {
	if got, err := b.Ledger.Balance(b.ctx, RandomKey()); err != nil || got != 0 {
		t.Errorf("a fresh wallet holds %d, %v", got, err)
	}
}

func testAnchor(t *testing.T, b *bench) {
	leaves := []sign.Hash{sign.Sum([]byte("one")), sign.Sum([]byte("two")), sign.Sum([]byte("three"))}
	anchor := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(leaves), Count: 3}
	copy(anchor.Ref[:], RandomKey().Short())
	tx := b.sign(t, anchor.Memo())
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
			t.Errorf("number %d: %v", i, err)
		}
	}
}

func testExpires(t *testing.T, b *bench) {
	tx := b.sign(t, memo("expires"))
	b.until(t, tx, chain.Expired)
	_ = b.Ledger.Send(b.ctx, tx) // refused or ignored, either is right
	for range 3 {
		b.step(t)
	}
	if status, err := b.Ledger.Status(b.ctx, tx); err != nil || status.State != chain.Expired {
		t.Errorf("after sending an expired transaction: %v, %v", status.State, err)
	}
	if _, _, err := b.Ledger.Memo(b.ctx, tx.ID); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("memo of an expired transaction: %v", err)
	}
}

func testRefuses(t *testing.T, b *bench) {
	for name, text := range map[string][]byte{"nothing": nil, "long": bytes.Repeat([]byte("x"), chain.MaxMemo+1),
		"binary": {0xff}} {
		if _, err := b.Ledger.SignMemo(b.ctx, text); !errors.Is(err, chain.ErrMemo) {
			t.Errorf("%s: %v, want ErrMemo", name, err)
		}
	}
	tx := b.sign(t, memo("damaged"))
	tx.Raw = tx.Raw[:len(tx.Raw)/2]
	if err := b.Ledger.Send(b.ctx, tx); err == nil {
		t.Error("half a transaction was taken")
	}
	if _, _, err := b.Ledger.Memo(b.ctx, "nonsense"); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("memo of nonsense: %v, want ErrNotFound", err)
	}
}

func testCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Ledger.Slot(ctx); err == nil {
		t.Error("Slot answered a cancelled call")
	}
	if _, err := b.Ledger.SignMemo(ctx, memo("cancelled")); err == nil {
		t.Error("SignMemo answered a cancelled call")
	}
}
