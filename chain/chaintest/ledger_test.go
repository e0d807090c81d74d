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
		return chaintest.Harness{Ledger: c.Ledger(chaintest.RandomKey()), Step: func(ctx context.Context) error {
			c.Advance(4)
			return ctx.Err()
		}}
	})
}

func TestFork(t *testing.T) {
	t.Parallel()
	c := chaintest.NewChain(chaintest.Config{})
	l := c.Ledger(chaintest.RandomKey())
	var txs []chain.Prepared
	for _, memo := range []string{"first", "second"} {
		tx, err := l.SignMemo(t.Context(), []byte(memo))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		txs = append(txs, tx)
	}
	first, second := txs[0], txs[1]
	c.Advance(2)
	expect := func(tx chain.Prepared, want chain.TxState) {
		t.Helper()
		if got, err := l.Status(t.Context(), tx); err != nil || got.State != want {
			t.Fatalf("%v, %v; want %v", got.State, err, want)
		}
	}
	expect(first, chain.Confirmed)
	expect(second, chain.Confirmed)
	if got := c.Fork(100, func(id chain.TxID) bool { return id == second.ID }); got != chaintest.FinalBlocks {
		t.Fatalf("forked %d blocks", got)
	}
	expect(first, chain.Unknown)
	c.Advance(chaintest.FinalBlocks + 2)
	expect(second, chain.Finalized)
	expect(first, chain.Unknown)
	c.Replay()
	c.Advance(chaintest.FinalBlocks + 2)
	expect(first, chain.Finalized)
	c.SetDown(true)
	if _, err := l.Slot(t.Context()); !errors.Is(err, chain.ErrDown) {
		t.Errorf("slot of a chain that is down: %v", err)
	}
}
