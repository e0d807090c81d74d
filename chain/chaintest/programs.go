package chaintest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Programs is Starling's program on a Chain, as its model has it, and everybody's tokens. A block is final FinalBlocks
// after it was made; there are no forks.
type Programs struct {
	chain *Chain
	net   escrow.Net

	mu     sync.Mutex
	lose   func(calls []program.Instruction) bool
	blind  map[sign.Key]error // errors that Look returns to a key
	final  *model.State
	tip    *model.State // with the blocks that are not final
	blocks []ran        // in these, oldest first
	done   map[chain.TxID]ran
	pool   []called // sent, in no block
	signed map[chain.TxID]called
	minted uint64
	poor   map[sign.Key]uint64 // lamports of the keys that do not have walletLamports
}

// called is a transaction of the program.
type called struct {
	tx     chain.Prepared
	by     sign.Key
	in     []program.Instruction
	tables []program.Table
}

// ran is one in a block; err says why it had no effect.
type ran struct {
	called
	slot uint64
	err  error
}

// walletLamports is the balance of every key without SetLamports.
const walletLamports = 1_000_000_000

// NewPrograms puts the network's account on a chain, and nothing else.
func NewPrograms(c *Chain, net escrow.Net) *Programs {
	p := &Programs{chain: c, net: net, final: model.New(net.Program), done: map[chain.TxID]ran{}, signed: map[chain.TxID]called{}, poor: map[sign.Key]uint64{}, blind: map[sign.Key]error{}}
	p.final.Networks[net.Address()] = net.Account
	pool := program.PoolAddress(net.Program, net.Address(), net.Mint)
	p.final.Tokens[pool] = program.Token{Mint: net.Mint, Owner: net.Address(), Plain: true}
	p.final.Mints[net.Mint] = model.Mint{Decimals: 6}
	p.tip = p.final.Clone()
	return p
}

// Mint gives an owner tokens out of nothing, which its key may spend.
func (p *Programs) Mint(owner sign.Key, amount market.Amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := program.TokenAccount(owner, p.net.Mint)
	for _, s := range []*model.State{p.final, p.tip} {
		s.Tokens[at] = program.Token{Mint: p.net.Mint, Owner: owner, Amount: s.Tokens[at].Amount + uint64(amount), Plain: true}
		m := s.Mints[p.net.Mint]
		m.Supply += uint64(amount)
		s.Mints[p.net.Mint] = m
	}
	p.minted += uint64(amount)
}

// SetLamports says how many lamports a key seems to have from now on: with none, it can sign nothing. They are not
// counted: fees and rent take nothing of them.
func (p *Programs) SetLamports(key sign.Key, lamports uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poor[key] = lamports
}

// Lose has transactions never reach a block for which lose answers true; nil: none.
func (p *Programs) Lose(lose func(calls []program.Instruction) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = lose
}

// Blind makes every Look of a key return err while the rest of the chain works; nil ends it.
func (p *Programs) Blind(key sign.Key, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blind[key] = err
}

// Advance makes a block of the sent transactions, in the chain's newest slot. It comes after each Advance(1) of the
// chain.
func (p *Programs) Advance() {
	slot := p.chain.newest()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.blocks) > 0 && p.blocks[0].slot+FinalBlocks <= slot {
		r := p.blocks[0]
		p.blocks = p.blocks[1:]
		r.err = p.run(&p.final, r.slot, r.called)
		p.done[r.tx.ID] = r
	}
	for _, x := range p.pool {
		if !p.known(x.tx.ID) && slot <= x.tx.LastValid {
			p.blocks = append(p.blocks, ran{x, slot, p.run(&p.tip, slot, x)})
		}
	}
	p.pool = nil
}

func (p *Programs) known(id chain.TxID) bool {
	_, final := p.done[id]
	return final || slices.ContainsFunc(p.blocks, func(r ran) bool { return r.tx.ID == id })
}

func (c *Chain) newest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(c.slot)
}

// away reports whether the chain answers nobody.
func (c *Chain) away() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// run is Run in place.
func (p *Programs) run(state **model.State, slot uint64, x called) (err error) {
	*state, err = Run(p.net.Program, *state, slot, x.in, x.tables...)
	return err
}

// State is the state on chain with the newest block. The caller must not change it.
func (p *Programs) State() *model.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tip
}

// Calls lists the calls of the program that had an effect for ever, in order.
func (p *Programs) Calls() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var landed []ran
	for _, r := range p.done {
		if r.err == nil {
			landed = append(landed, r)
		}
	}
	slices.SortFunc(landed, func(a, b ran) int { return int(a.slot) - int(b.slot) })
	for _, r := range landed {
		for _, in := range r.in {
			if name := in.CallName(p.net.Program); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// Check returns an error if tokens were made or lost: the missing ones must be burned, and no more than the fees.
func (p *Programs) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum uint64
	for _, t := range p.tip.Tokens {
		sum += t.Amount
	}
	if supply := p.tip.Mints[p.net.Mint].Supply; sum != supply || supply > p.minted {
		return fmt.Errorf("chaintest: %d base units are held, the supply is %d and %d were minted", sum, supply, p.minted)
	}
	return nil
}

// ProgramLedger is the chain for one key, which owns its tokens. It implements chain.Ledger, chain.MemoLedger and
// escrow.Ledger.
type ProgramLedger struct {
	*Ledger
	p   *Programs
	key sign.Key
}

var _ escrow.Ledger = (*ProgramLedger)(nil)

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
	return market.Amount(l.p.tip.Tokens[program.TokenAccount(owner, l.p.net.Mint)].Amount), nil
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
func (l *ProgramLedger) Network(context.Context) (program.Network, error) {
	if l.p.chain.away() {
		return program.Network{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.tip.Networks[l.p.net.Address()], nil
}

// Anchored reads a root that a key wrote down.
func (l *ProgramLedger) Anchored(_ context.Context, authority sign.Key, root sign.Hash) (program.Anchored, error) {
	if l.p.chain.away() {
		return program.Anchored{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	a, ok := l.p.tip.Anchors[program.AnchorAddress(l.p.net.Program, authority, root)]
	if !ok {
		return program.Anchored{}, chain.ErrNotFound
	}
	return a, nil
}

// AnchorIn reads the root that a final transaction wrote down.
func (l *ProgramLedger) AnchorIn(_ context.Context, id chain.TxID) (program.Anchored, error) {
	if l.p.chain.away() {
		return program.Anchored{}, chain.ErrDown
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	r, ok := l.p.done[id]
	if ok && r.err == nil {
		for _, in := range r.in {
			if a, ok := program.ParseAnchor(l.p.net.Program, in); ok {
				return program.Anchored{Authority: a.Authority, Root: a.Root, Count: a.Count, Slot: r.slot}, nil
			}
		}
	}
	return program.Anchored{}, chain.ErrNotFound
}

// Look implements escrow.Ledger.
func (l *ProgramLedger) Look(_ context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
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
	v := escrow.View{Slot: market.Slot(slot), Tranches: map[uint16]program.Tranche{}}
	e, ok := state.Escrows[at]
	if !ok {
		return v, nil
	}
	v.Escrow, v.Vault = &e, market.Amount(state.Tokens[e.Vault].Amount)
	for _, i := range tranches {
		if t, ok := state.Tranches[program.TrancheAddress(l.p.net.Program, at, i)]; ok {
			v.Tranches[i] = t
		}
	}
	return v, nil
}

// Deployed is the program that this package is: nobody can change it.
func (l *ProgramLedger) Deployed(context.Context) (program.Deployed, error) {
	if l.p.chain.away() {
		return program.Deployed{}, chain.ErrDown
	}
	return program.Deployed{Code: Code, Slot: 1}, nil
}

// Code is the code hash of the program here, for a genesis.
var Code = sign.Sum([]byte("chaintest program"))

// Bid implements escrow.Ledger: nobody else bids here.
func (l *ProgramLedger) Bid(_ context.Context, in []program.Instruction, stake market.Amount, retries uint8) ([]program.Instruction, error) {
	if l.p.chain.away() {
		return nil, chain.ErrDown
	}
	return bid(l.p.net.Program, in, stake, retries), nil
}

// bid adds the budget that is bid where nobody else bids, for a token of six decimals.
func bid(at sign.Key, in []program.Instruction, stake market.Amount, retries uint8) []program.Instruction {
	fees, units := chain.DefaultFees(), program.Units(at, in)
	return slices.Concat(in, program.Budget(units, fees.Price(0, retries, units, fees.Ceiling(stake, 6))))
}

// Sign implements escrow.Ledger. Its transactions are not Solana's: the chain stores the instructions behind each one.
func (l *ProgramLedger) Sign(_ context.Context, in []program.Instruction, tables []program.Table, others ...sign.Signer) (chain.Prepared, error) {
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
	tx := chain.Prepared{ID: chain.TxID(id.String()), Raw: id[:], LastValid: slot + ValidBlocks, Since: market.Slot(slot)}
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
