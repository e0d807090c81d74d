package settle

import (
	"context"
	"sync"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
)

// Landed is a transaction that a supermajority voted for, told once to who follows a machine; after a crash perhaps again.
type Landed struct {
	Tx    chain.TxID `json:"tx"`
	Calls []string   `json:"calls"` // of the program, in their order
}

// Observer follows what a machine sees and does on chain. It is told in the machine's own goroutine.
type Observer struct {
	Looked func(name string, v escrow.View) // at level Confirmed
	Landed func(name string, l Landed)
}

// observed is a ledger whose answers somebody follows.
type observed struct {
	escrow.Ledger
	name    string
	program sign.Key
	to      Observer

	mu    sync.Mutex
	calls map[chain.TxID][]string // of what was signed, until its fate is final
	told  map[chain.TxID]bool     // likewise
}

func (o *observed) Look(ctx context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
	v, err := o.Ledger.Look(ctx, at, tranches, level)
	if err == nil && level == escrow.Confirmed {
		o.to.Looked(o.name, v)
	}
	return v, err
}

func (o *observed) Sign(ctx context.Context, instructions []program.Instruction, tables []program.Table, others ...sign.Signer) (chain.Prepared, error) {
	tx, err := o.Ledger.Sign(ctx, instructions, tables, others...)
	if err == nil {
		calls := []string{}
		for _, in := range instructions {
			if name := in.CallName(o.program); name != "" {
				calls = append(calls, name)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls[tx.ID] = calls
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
	calls, again := o.calls[tx.ID], o.told[tx.ID]
	if s.State.Final() { // nobody asks for it again
		delete(o.calls, tx.ID)
		delete(o.told, tx.ID)
	} else if landed {
		o.told[tx.ID] = true
	}
	o.mu.Unlock()
	if landed && !again {
		o.to.Landed(o.name, Landed{Tx: tx.ID, Calls: calls})
	}
	return s, nil
}
