package settle

import (
	"context"
	"sync"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Landed is a transaction that a supermajority voted for, reported once to the observer of a machine; after a crash
// perhaps again.
type Landed struct {
	Tx    chain.TxID `json:"tx"`
	Calls []string   `json:"calls"`         // of the program, in their order
	Fee   uint64     `json:"fee,omitempty"` // lamports; 0 where an earlier process signed it
}

// Observer is notified of the views and transactions of machines, one at a time for each machine.
type Observer interface {
	// Looked receives each view at level Confirmed.
	Looked(name string, v escrow.View)
	// Landed receives each transaction that is on chain.
	Landed(name string, l Landed)
}

// observed is a ledger with an observer of its answers.
type observed struct {
	escrow.Ledger
	name    string
	program sign.Key
	to      Observer

	mu   sync.Mutex
	made map[chain.TxID]Landed // signed transactions, until their outcome is final
	told map[chain.TxID]bool   // likewise
}

func (o *observed) Look(ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
	v, err := o.Ledger.Look(ctx, at, tranches, level)
	if err == nil && level == escrow.Confirmed {
		o.to.Looked(o.name, v)
	}
	return v, err
}

func (o *observed) Sign(
	ctx context.Context, instructions []svm.Instruction, tables []svm.Table, others ...sign.Signer,
) (chain.Prepared, error) {
	tx, err := o.Ledger.Sign(ctx, instructions, tables, others...)
	if err == nil {
		calls := []string{}
		for _, in := range instructions {
			if name := program.CallName(o.program, in); name != "" {
				calls = append(calls, name)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.made[tx.ID] = Landed{Tx: tx.ID, Calls: calls, Fee: escrow.Fee(instructions, 1+len(others))}
	}
	return tx, err
}

func (o *observed) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	s, err := o.Ledger.Status(ctx, tx)
	if err != nil {
		return s, err
	}
	landed := s.State == chain.Confirmed || s.State == chain.Finalized
	o.mu.Lock()
	made, again := o.made[tx.ID], o.told[tx.ID]
	if s.State.Final() { // it is not requested again
		delete(o.made, tx.ID)
		delete(o.told, tx.ID)
	} else if landed {
		o.told[tx.ID] = true
	}
	o.mu.Unlock()
	if landed && !again {
		made.Tx = tx.ID
		o.to.Landed(o.name, made)
	}
	return s, nil
}
