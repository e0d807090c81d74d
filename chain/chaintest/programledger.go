package chaintest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// ProgramLedger is the chain for one key, which owns its tokens. It implements chain.Ledger, chain.MemoLedger and
// escrow.Ledger.
type ProgramLedger struct {
	*Ledger
	p   *Programs
	key sign.Key
}

// Ledger is the program as a key sees it.
func (p *Programs) Ledger(key sign.Key) *ProgramLedger {
	return &ProgramLedger{Ledger: p.chain.Ledger(key), p: p, key: key}
}

// Balance implements chain.Ledger.
func (l *ProgramLedger) Balance(_ context.Context, owner sign.Key) (market.Amount, error) {
	if l.p.chain.away() {
		return 0, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return market.Amount(l.p.tip.Tokens[svm.TokenAccount(owner, l.p.net.Mint)].Amount), nil
}

// Funds returns the key's spendable funds.
func (l *ProgramLedger) Funds(ctx context.Context) (chain.Funds, error) {
	b, err := l.Balance(ctx, l.key)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	lamports, poor := l.p.poor[l.key]
	if !poor {
		lamports = walletLamports
	}
	return chain.Funds{Balance: b, Spendable: b, Lamports: lamports}, err
}

// Purses reads accounts that orders name.
func (l *ProgramLedger) Purses(_ context.Context, accounts []sign.Key) ([]escrow.Purse, error) {
	if l.p.chain.away() {
		return nil, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	out := make([]escrow.Purse, len(accounts))
	for i, at := range accounts {
		if e, ok := l.p.tip.Escrows[at]; ok {
			out[i].Escrow = &e
		} else if t := l.p.tip.Tokens[at]; t.Mint == l.p.net.Mint {
			out[i] = escrow.Purse{Owner: t.Owner, Amount: market.Amount(t.Amount)}
		}
	}
	return out, nil
}

// Provide implements settle.Chain: these keys are owners.
func (l *ProgramLedger) Provide(context.Context, market.Amount) error { return nil }

// Network reads the network's account.
func (l *ProgramLedger) Network(context.Context) (account.Network, error) {
	if l.p.chain.away() {
		return account.Network{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.tip.Networks[l.p.net.Address()], nil
}

// Anchored reads a root that a key wrote down.
func (l *ProgramLedger) Anchored(_ context.Context, authority sign.Key, root sign.Hash) (account.Anchored, error) {
	if l.p.chain.away() {
		return account.Anchored{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	a, ok := l.p.tip.Anchors[account.AnchorAddress(l.p.net.Program, authority, root)]
	if !ok {
		return account.Anchored{}, chain.ErrNotFound
	}
	return a, nil
}

// AnchorIn reads the root that a final transaction wrote down.
func (l *ProgramLedger) AnchorIn(_ context.Context, id chain.TxID) (account.Anchored, error) {
	if l.p.chain.away() {
		return account.Anchored{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	r, ok := l.p.done[id]
	if ok && r.err == nil {
		for _, in := range r.in {
			if a, ok := program.ParseAnchor(l.p.net.Program, in); ok {
				return account.Anchored{Authority: a.Authority, Root: a.Root, Count: a.Count, Slot: r.slot}, nil
			}
		}
	}
	return account.Anchored{}, chain.ErrNotFound
}

// Look implements escrow.Ledger.
func (l *ProgramLedger) Look(
	_ context.Context, at sign.Key, tranches []uint16, level escrow.Level,
) (escrow.View, error) {
	if l.p.chain.away() {
		return escrow.View{}, chain.ErrDown
	}
	slot := l.p.chain.newest()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if err := l.p.blind[l.key]; err != nil {
		return escrow.View{}, err
	}
	state := l.p.tip
	if level == escrow.Finalized {
		state, slot = l.p.final, slot-FinalBlocks
	}
	return ViewOf(l.p.net.Program, state, slot, at, tranches), nil
}

// ViewOf returns the view of an escrow in a state of the program, which a ledger has in a slot.
func ViewOf(id sign.Key, state *model.State, slot uint64, at sign.Key, tranches []uint16) escrow.View {
	v := escrow.View{Slot: market.Slot(slot), Tranches: map[uint16]account.Tranche{}}
	e, ok := state.Escrows[at]
	if !ok {
		return v
	}
	v.Escrow, v.Vault = &e, market.Amount(state.Tokens[e.Vault].Amount)
	for _, i := range tranches {
		if t, ok := state.Tranches[account.TrancheAddress(id, at, i)]; ok {
			v.Tranches[i] = t
		}
	}
	return v
}

// Deployed returns the emulated program, which has no upgrade authority.
func (l *ProgramLedger) Deployed(context.Context) (svm.Deployed, error) {
	if l.p.chain.away() {
		return svm.Deployed{}, chain.ErrDown
	}
	return svm.Deployed{Code: Code, Slot: 1}, nil
}

// Code is the code hash of the program here, for a genesis.
var Code = sign.Sum([]byte("chaintest program"))

// Bid implements escrow.Ledger. No other transaction competes here.
func (l *ProgramLedger) Bid(
	_ context.Context, in []svm.Instruction, stake market.Amount, retries uint8,
) ([]svm.Instruction, error) {
	if l.p.chain.away() {
		return nil, chain.ErrDown
	}
	return bid(l.p.net.Program, in, stake, retries), nil
}

// bid adds the budget of a bid without competition, for a token of six decimals.
func bid(at sign.Key, in []svm.Instruction, stake market.Amount, retries uint8) []svm.Instruction {
	fees, units := chain.DefaultFees(), program.Units(at, in)
	return slices.Concat(in, svm.Budget(units, fees.Price(0, retries, units, fees.Ceiling(stake, 6))))
}

// Sign implements escrow.Ledger. Its transactions are not Solana's: the chain stores the instructions behind each one.
func (l *ProgramLedger) Sign(
	_ context.Context, in []svm.Instruction, tables []svm.Table, others ...sign.Signer,
) (chain.Prepared, error) {
	if l.p.chain.away() {
		return chain.Prepared{}, chain.ErrDown
	}
	slot := l.p.chain.newest()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if have, poor := l.p.poor[l.key]; poor && have == 0 {
		return chain.Prepared{}, fmt.Errorf("%s holds 0 lamports: %w", l.key, chain.ErrFees)
	}
	h := append(binary.LittleEndian.AppendUint64(nil, slot), l.key[:]...)
	for _, i := range in {
		for _, m := range i.Accounts {
			mine := m.Key == l.key || slices.ContainsFunc(others, func(o sign.Signer) bool { return o.Key() == m.Key })
			if m.Signer && !mine {
				return chain.Prepared{}, fmt.Errorf("chaintest: no key for %s", m.Key)
			}
			h = append(h, m.Key[:]...)
		}
		h = append(h, i.Data...)
	}
	if size := Size(l.key, in, tables...); size > chain.MaxRaw {
		return chain.Prepared{}, fmt.Errorf("%w: transaction of %d bytes", chain.ErrPayment, size)
	}
	id := sign.Sum(h)
	tx := chain.Prepared{ID: chain.TxID(id.String()), Raw: id[:], LastValid: slot + ValidBlocks,
		Since: market.Slot(slot)}
	l.p.signed[tx.ID] = called{tx: tx, by: l.key, in: in, tables: tables}
	return tx, nil
}

// Send implements escrow.Ledger and chain.Ledger.
func (l *ProgramLedger) Send(ctx context.Context, tx chain.Prepared) error {
	if l.p.chain.away() {
		return chain.ErrDown
	}
	slot := l.p.chain.newest()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	x, ours := l.p.signed[tx.ID]
	if !ours {
		return l.Ledger.Send(ctx, tx)
	}
	if l.p.lose != nil && l.p.lose(x.in) || l.p.known(tx.ID) {
		return nil
	}
	if !slices.ContainsFunc(l.p.pool, func(o called) bool { return o.tx.ID == tx.ID }) {
		l.p.pool = append(l.p.pool, x)
	}
	if _, err := Run(l.p.net.Program, l.p.tip, slot, x.in, x.tables...); err != nil {
		return fmt.Errorf("chaintest: %w: %w", chain.ErrRejected, err)
	}
	return nil
}

// Status implements escrow.Ledger and chain.Ledger.
func (l *ProgramLedger) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if l.p.chain.away() {
		return chain.TxStatus{}, chain.ErrDown
	}
	slot := l.p.chain.newest()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if _, ours := l.p.signed[tx.ID]; !ours {
		return l.Ledger.Status(ctx, tx)
	}
	if r, ok := l.p.done[tx.ID]; ok {
		if r.err != nil {
			return chain.TxStatus{State: chain.Failed, Slot: market.Slot(r.slot), Err: r.err.Error()}, nil
		}
		return chain.TxStatus{State: chain.Finalized, Slot: market.Slot(r.slot)}, nil
	}
	for _, r := range l.p.blocks {
		if r.tx.ID != tx.ID {
			continue
		}
		if r.err != nil {
			return chain.TxStatus{State: chain.Pending, Slot: market.Slot(r.slot), Err: r.err.Error()}, nil
		}
		return chain.TxStatus{State: chain.Confirmed, Slot: market.Slot(r.slot)}, nil
	}
	if slot-FinalBlocks > tx.LastValid {
		return chain.TxStatus{State: chain.Expired}, nil
	}
	return chain.TxStatus{}, nil
}
