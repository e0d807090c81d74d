package pay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// forgetful is a chain of which nobody remembers the first transaction it is asked about.
type forgetful struct {
	settle.Chain
	fate  fate
	first chain.TxID
}

// fate is what became of that transaction, which an earlier process sent.
type fate int

const (
	landed fate = iota
	lost
	late // it lands when another one was signed already
)

func (l *forgetful) Send(ctx context.Context, tx chain.Prepared) error {
	if l.fate == lost && (l.first == "" || l.first == tx.ID) {
		return nil
	}
	return l.Chain.Send(ctx, tx)
}

func (l *forgetful) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if l.first == "" {
		_ = l.Send(ctx, tx)
		l.first = tx.ID
		if l.fate == landed {
			time.Sleep(10 * time.Second)
		}
	}
	if l.first == tx.ID {
		return chain.TxStatus{}, chain.ErrHistory
	}
	return l.Chain.Status(ctx, tx)
}

// TestAnchorForgotten: a peer that was away for so long that nobody remembers its anchor's transaction sends another.
// Otherwise its job would never end. No account and no rent is left on chain, in all fates of the first.
func TestAnchorForgotten(t *testing.T) {
	t.Parallel()
	for name, became := range map[string]fate{"landed": landed, "lost": lost, "late": late} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { forgotten(t, became) })
		})
	}
}

func forgotten(t *testing.T, became fate) {
	c := chaintest.NewChain(chaintest.Config{})
	at, self := sign.Key{3}, sign.Key{1}
	p := account.Params{Network: "test", Mints: []account.MintTerms{account.DefaultTerms(sign.Key{4}, 6)}}
	net, err := escrow.NewNet(at, account.NewNetwork(p), sign.Key{4})
	if err != nil {
		t.Fatal(err)
	}
	programs := chaintest.NewPrograms(c, net)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.Advance(1)
			programs.Advance()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	l := &forgetful{Chain: programs.Ledger(self), fate: became}
	x := &anchors{Config{
		Escrows: Escrows{Chain: l, Params: escrow.DefaultParams()}, Genesis: market.Genesis{Program: at}, Self: self,
		Store: store.NewMemory(), Jobs: newPeer(),
	}}
	owed := Anchoring{Root: [32]byte{9}, Receipts: 1}
	tx, err := x.anchor(ctx, "job", owed)
	if err != nil || tx == "" || chain.TxID(tx) == l.first {
		t.Errorf("the anchor is %q, the first was %q: %v", tx, l.first, err)
	}
	again, err := x.anchor(ctx, "job", owed)
	if err != nil || again != tx {
		t.Errorf("asked again it is %q, not %q: %v", again, tx, err)
	}
	cancel()
	<-done
	s := programs.State()
	if len(s.Anchors) != 0 || s.Rent[self] != 0 || !slices.Contains(programs.Calls(), "CloseAnchor") {
		t.Errorf("%d anchors, %d lamports of rent", len(s.Anchors), s.Rent[self])
	}
}
