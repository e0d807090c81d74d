package settle

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// staged is a ledger on which a transaction is as far as is said.
type staged struct {
	escrow.Ledger
	signed int
	state  chain.TxState
}

func (s *staged) Sign(context.Context, []svm.Instruction, []svm.Table, ...sign.Signer) (chain.Prepared, error) {
	s.signed++
	return chain.Prepared{ID: chain.TxID(fmt.Sprint(s.signed))}, nil
}

func (s *staged) Status(context.Context, chain.Prepared) (chain.TxStatus, error) {
	return chain.TxStatus{State: s.state}, nil
}

// landings is an observer that keeps what landed.
type landings []Landed

func (*landings) Looked(string, escrow.View)  {}
func (o *landings) Landed(_ string, l Landed) { *o = append(*o, l) }

// What landed is told once, also when it is first seen final, and nothing is kept of a transaction whose fate is.
func TestObservedForgets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		states []chain.TxState
		told   int
	}{
		{[]chain.TxState{chain.Unknown, chain.Pending, chain.Confirmed, chain.Confirmed, chain.Finalized}, 1},
		{[]chain.TxState{chain.Finalized}, 1},
		{[]chain.TxState{chain.Confirmed, chain.Unknown, chain.Confirmed, chain.Expired}, 1},
		{[]chain.TxState{chain.Pending, chain.Failed}, 0},
		{[]chain.TxState{chain.Expired}, 0},
	} {
		var told landings
		l := &staged{}
		o := &observed{Ledger: l, made: map[chain.TxID]Landed{}, told: map[chain.TxID]bool{}, to: &told}
		tx, err := o.Sign(t.Context(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l.state = range c.states {
			if _, err := o.Status(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		if len(told) != c.told || slices.ContainsFunc(told, func(l Landed) bool { return l.Tx != tx.ID || l.Fee != chain.SignatureFee }) || len(o.made)+len(o.told) > 0 {
			t.Errorf("%v: told %v, kept %d and %d", c.states, told, len(o.made), len(o.told))
		}
	}
}
