package chaintest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	chaintest.TestLedger(t, func(*testing.T) chaintest.Harness {
		c := chaintest.NewChain(chaintest.Config{})
		owner := chaintest.RandomKey()
		c.Mint(owner, 1_000_000)
		return chaintest.Harness{Ledger: c.Ledger(owner), Owner: owner, Step: func(ctx context.Context) error {
			c.Advance(4)
			return errors.Join(ctx.Err(), c.Check())
		}}
	})
}

func TestForkAndAllowance(t *testing.T) {
	t.Parallel()
	c := chaintest.NewChain(chaintest.Config{})
	owner, to := chaintest.RandomKey(), chaintest.RandomKey()
	c.Mint(owner, 100)
	c.Approve(owner, 60)
	l := c.Ledger(owner)
	pay := func(amount int) chain.Payment {
		return chain.Payment{Payouts: []chain.Payout{{To: to, Amount: 50}}, Memo: []byte{byte('0' + amount)}}
	}
	first, err := l.Prepare(t.Context(), pay(1))
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.Prepare(t.Context(), pay(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range []chain.Prepared{first, second} {
		if err := l.Send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	c.Advance(2)
	expect := func(tx chain.Prepared, want chain.TxState) {
		t.Helper()
		if got, err := l.Status(t.Context(), tx); err != nil || got.State != want {
			t.Fatalf("%v, %v; want %v", got.State, err, want)
		}
	}
	expect(first, chain.Confirmed)
	expect(second, chain.Pending) // failed for want of allowance, and not final
	if got := c.Fork(100, func(id chain.TxID) bool { return id == second.ID }); got != chaintest.FinalBlocks {
		t.Fatalf("forked %d blocks", got)
	}
	expect(first, chain.Unknown)
	c.Advance(chaintest.FinalBlocks + 2)
	expect(second, chain.Finalized)
	expect(first, chain.Unknown)
	c.Replay()
	c.Advance(chaintest.FinalBlocks + 2)
	expect(first, chain.Failed)
	if got, _ := l.Balance(t.Context(), to); got != 50 {
		t.Errorf("receiver holds %d, want 50", got)
	}
	c.SetDown(true)
	if _, err := l.Slot(t.Context()); !errors.Is(err, chain.ErrDown) {
		t.Errorf("slot of a chain that is down: %v", err)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}
