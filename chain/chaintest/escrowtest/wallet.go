package escrowtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Wallet is an escrow.Ledger by one key.
type Wallet struct {
	Chain *Chain
	By    sign.Private
	Down  bool
	Lose  bool // sent transactions get lost
	Slow  bool // it answers one question a moment, and late
	Old   int  // the endpoint's lag in moments: it shows only the state that was final then; 0: none
}

// Look implements escrow.Ledger.
func (w *Wallet) Look(
	_ context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (escrow.View, error) {
	if w.Down {
		return escrow.View{}, chain.ErrDown
	}
	c := w.Chain
	state, slot := c.Tip, c.Slot
	if level == escrow.Finalized || w.Old > 0 {
		state, slot = c.Final, c.Root
	}
	if w.Old > 0 && len(c.past) > 0 {
		then := c.past[max(0, len(c.past)-w.Old)]
		state, slot = then.state, then.slot
	}
	return chaintest.ViewOf(c.Net.Program, state, slot, at, tranches), nil
}

// Bid implements escrow.Ledger.
func (w *Wallet) Bid(
	_ context.Context, in []svm.Instruction, stake market.Amount, retries uint8,
) ([]svm.Instruction, error) {
	fees, units := chain.DefaultFees(), program.Units(w.Chain.Net.Program, in)
	return slices.Concat(in, svm.Budget(units, fees.Price(0, retries, units, fees.Ceiling(stake, 6)))), nil
}

// Sign implements escrow.Ledger.
func (w *Wallet) Sign(
	_ context.Context, in []svm.Instruction, tables []svm.Table, others ...sign.Signer,
) (chain.Prepared, error) {
	c, by := w.Chain, w.By.Key()
	if w.Down {
		return chain.Prepared{}, chain.ErrDown
	}
	has := map[sign.Key]bool{by: true}
	for _, o := range others {
		has[o.Key()] = has[o.Key()] || !c.Away[o.Key()]
	}
	h := binary.LittleEndian.AppendUint64(nil, c.Slot)
	h = append(h, by[:]...)
	for _, i := range in {
		for _, m := range i.Accounts {
			if m.Signer && !has[m.Key] {
				return chain.Prepared{}, fmt.Errorf("no key for %s", m.Key)
			}
			h = append(h, m.Key[:]...)
		}
		h = append(h, i.Data...)
	}
	if size := chaintest.Size(by, in, tables...); size > chain.MaxRaw {
		return chain.Prepared{}, fmt.Errorf("%w: transaction of %d bytes", chain.ErrPayment, size)
	}
	c.watch(in)
	id := sign.Sum(h)
	tx := chain.Prepared{ID: chain.TxID(id.String()), Raw: id[:], LastValid: c.Slot + lifetime,
		Since: market.Slot(c.Slot)}
	c.Made[tx.ID] = Transaction{Tx: tx, In: in, Tables: tables}
	return tx, nil
}

// Send implements escrow.Ledger.
func (w *Wallet) Send(_ context.Context, tx chain.Prepared) error {
	c := w.Chain
	if w.Down {
		return chain.ErrDown
	}
	x, ok := c.Made[tx.ID]
	if !ok || !bytes.Equal(x.Tx.Raw, tx.Raw) {
		return chain.ErrMalformed
	}
	if w.Lose {
		return nil
	}
	if !slices.ContainsFunc(c.Pool, func(p Transaction) bool { return p.Tx.ID == tx.ID }) {
		c.Pool = append(c.Pool, x)
	}
	if !c.inBlock(tx.ID) && c.done[tx.ID].slot == 0 {
		if _, err := chaintest.Run(c.Net.Program, c.Tip, c.Slot, x.In, x.Tables...); err != nil {
			return fmt.Errorf("%w: %w", chain.ErrRejected, err)
		}
	}
	return nil
}

// Status implements escrow.Ledger.
func (w *Wallet) Status(_ context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	c := w.Chain
	if w.Down {
		return chain.TxStatus{}, chain.ErrDown
	}
	status := func(l landed, state chain.TxState, failed chain.TxState) chain.TxStatus {
		if l.err != nil {
			return chain.TxStatus{State: failed, Slot: market.Slot(l.slot), Err: l.err.Error()}
		}
		return chain.TxStatus{State: state, Slot: market.Slot(l.slot)}
	}
	if l, ok := c.done[tx.ID]; ok {
		return status(l, chain.Finalized, chain.Failed), nil
	}
	for _, l := range c.blocks {
		if l.Tx.ID == tx.ID {
			return status(l, chain.Confirmed, chain.Pending), nil
		}
	}
	if c.Root > tx.LastValid {
		return chain.TxStatus{State: chain.Expired}, nil
	}
	return chain.TxStatus{}, nil
}
