package escrow_test

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
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

const (
	firstSlot = 1000
	lifetime  = 40 // slots in which a signed transaction may land
	lag       = 8  // slots between confirmed and final
	wealth    = 1 << 30
)

// sim is a chain with the program's model: blocks, of which the newest can be forked away, and transactions on their way to one.
type sim struct {
	net     escrow.Net
	slot    uint64
	root    uint64       // newest final slot
	final   *model.State // as of root
	tip     *model.State // with the blocks after it
	blocks  []landed     // in these blocks, oldest first
	done    map[chain.TxID]landed
	pool    []transaction // sent, in no block
	signed  map[chain.TxID]transaction
	opens   int // escrows opened for ever
	adds    int // tranches
	hires   int // standby tranches
	topUps  int
	paid    map[place]market.Amount
	opening []uint64          // slots named by the openings that were signed, in order
	wrong   string            // what must never be signed
	past    []moment          // final states, oldest first
	away    map[sign.Key]bool // who does not sign now, but for themselves
	price   uint64            // claims that bid less for a unit are left out
}

// moment is a state that was final in a slot. (A state that is final is replaced, never changed.)
type moment struct {
	slot  uint64
	state *model.State
}

// place is a lease's leaf. (Where one was forked away another may come to be under the same number.)
type place struct {
	tranche sign.Key
	lease   market.LeaseID
}

// claims is the lease whose voucher a transaction shows.
func (x transaction) claims() market.LeaseID {
	for _, in := range x.in {
		if s, ok := program.ParseSigned(in); ok && len(s.Message) >= verify.VoucherSize {
			if v, err := verify.UnmarshalVoucher(s.Message[len(s.Message)-verify.VoucherSize:]); err == nil {
				return v.Lease
			}
		}
	}
	return market.LeaseID{}
}

type transaction struct {
	tx     chain.Prepared
	in     []program.Instruction
	tables []program.Table
}

// landed is a transaction in a block; err says why it had no effect.
type landed struct {
	transaction
	slot uint64
	err  error
}

func newSim(net escrow.Net) *sim {
	s := &sim{net: net, slot: firstSlot, root: firstSlot - lag, final: model.New(net.Program), done: map[chain.TxID]landed{}, signed: map[chain.TxID]transaction{},
		paid: map[place]market.Amount{}}
	s.final.Networks[net.Address()] = net.Account
	s.final.Mints[net.Mint] = model.Mint{Decimals: 6, Supply: wealth}
	s.hold(program.TokenAccount(key("owner"), net.Mint), key("owner"), 0)
	s.hold(key("source"), key("buyer"), wealth)
	s.hold(program.PoolAddress(net.Program, net.Address(), net.Mint), net.Address(), 0)
	s.tip = s.final.Clone()
	return s
}

func (s *sim) hold(at, owner sign.Key, amount uint64) {
	s.final.Tokens[at] = program.Token{Mint: s.net.Mint, Owner: owner, Amount: amount, Plain: true}
}

// tokens is all that there is, in every account.
func (s *sim) tokens() (sum uint64) {
	for _, t := range s.tip.Tokens {
		sum += t.Amount
	}
	return sum
}

func (s *sim) balance(wallet sign.Key) uint64 {
	return s.tip.Tokens[program.TokenAccount(wallet, s.net.Mint)].Amount
}

// run applies a transaction to a state, wholly or not at all.
func (s *sim) run(state **model.State, slot uint64, x transaction) (err error) {
	*state, err = chaintest.Run(s.net.Program, *state, slot, x.in, x.tables...)
	return err
}

// land puts a sent transaction into the newest block.
func (s *sim) land(i int) {
	x := s.pool[i]
	s.pool = slices.Delete(s.pool, i, i+1)
	if _, _, price, _ := program.SplitBudget(x.in); price < s.price && x.claims() != (market.LeaseID{}) {
		return
	}
	if _, twice := s.done[x.tx.ID]; twice || s.slot > x.tx.LastValid || slices.ContainsFunc(s.blocks, func(l landed) bool { return l.tx.ID == x.tx.ID }) {
		return
	}
	s.blocks = append(s.blocks, landed{x, s.slot, s.run(&s.tip, s.slot, x)})
}

// advance lets slots pass; old blocks become final.
func (s *sim) advance(slots uint64) {
	s.slot += slots
	for len(s.blocks) > 0 && s.blocks[0].slot+lag <= s.slot {
		l := s.blocks[0]
		s.blocks = s.blocks[1:]
		l.err = s.run(&s.final, l.slot, l.transaction)
		s.done[l.tx.ID] = l
		for _, in := range l.in {
			if l.err == nil && in.Program == s.net.Program {
				s.hires += one(in.Data[0] == 5)
				s.opens += one(in.Data[0] == 3)
				s.adds += one(in.Data[0] == 4)
				s.topUps += one(in.Data[0] == 6)
				if call, _, _ := program.ParseCall(s.net.Program, in); call != nil {
					if c, ok := call.(program.Claim); ok {
						s.paid[place{c.Tranche, l.claims()}] = market.Amount(s.final.Tranches[c.Tranche].Leaves[c.Leaf.Index].Paid)
					}
				}
			}
		}
	}
	s.root = max(s.root, s.slot-lag)
	s.past = append(s.past, moment{s.root, s.final})
}

// watch notes an opening that is signed while another escrow of the order could still come to be.
func (s *sim) watch(in []program.Instruction) {
	for _, i := range in {
		call, _, _ := program.ParseCall(s.net.Program, i)
		c, ok := call.(program.OpenEscrow)
		if !ok || slices.Contains(s.opening, c.Opened) && s.opening[len(s.opening)-1] == c.Opened {
			continue
		}
		for _, before := range s.opening {
			_, there := s.tip.Escrows[s.net.Escrow(c.Buyer, c.Order, before)]
			if there || s.root <= before+program.OpeningSlots || before == c.Opened {
				s.wrong = fmt.Sprintf("an escrow of slot %d was signed, that of slot %d could still be", c.Opened, before)
			}
		}
		s.opening = append(s.opening, c.Opened)
	}
}

func one(when bool) int {
	if when {
		return 1
	}
	return 0
}

// inject applies a call of somebody else's, for ever and at once. Nothing may be in blocks that are not final.
func (s *sim) inject(t fataler, call program.Call) {
	t.Helper()
	s.final = s.final.Clone()
	if err := s.final.Apply(s.root, call); err != nil || len(s.blocks) > 0 {
		t.Fatalf("%T: %v, beside %d transactions", call, err, len(s.blocks))
	}
	s.tip = s.final.Clone()
}

// fork takes the newest n transactions out of their blocks; some come back by themselves.
func (s *sim) fork(n int, back bool) {
	n = min(n, len(s.blocks))
	gone := s.blocks[len(s.blocks)-n:]
	s.blocks = slices.Clone(s.blocks[:len(s.blocks)-n])
	s.tip = s.final.Clone()
	for i, l := range s.blocks {
		s.blocks[i].err = s.run(&s.tip, l.slot, l.transaction)
	}
	for _, l := range gone {
		if back {
			s.pool = append(s.pool, l.transaction)
		}
	}
}

// wallet is a Ledger by one key.
type wallet struct {
	s    *sim
	by   sign.Private
	down bool
	lose bool // what is sent gets lost
	slow bool // it answers one question a moment, and late
	old  int  // the endpoint shows only what was final so many moments ago; 0: all there is
}

func (w *wallet) Look(_ context.Context, at sign.Key, tranches []uint16, level escrow.Level) (escrow.View, error) {
	if w.down {
		return escrow.View{}, chain.ErrDown
	}
	state, slot := w.s.tip, w.s.slot
	if level == escrow.Finalized || w.old > 0 {
		state, slot = w.s.final, w.s.root
	}
	if w.old > 0 && len(w.s.past) > 0 {
		then := w.s.past[max(0, len(w.s.past)-w.old)]
		state, slot = then.state, then.slot
	}
	return chaintest.ViewOf(w.s.net.Program, state, slot, at, tranches), nil
}

func (w *wallet) Bid(_ context.Context, in []program.Instruction, stake market.Amount, retries uint8) ([]program.Instruction, error) {
	fees, units := chain.DefaultFees(), program.Units(w.s.net.Program, in)
	return slices.Concat(in, program.Budget(units, fees.Price(0, retries, units, fees.Ceiling(stake, 6)))), nil
}

func (w *wallet) Sign(_ context.Context, in []program.Instruction, tables []program.Table, others ...sign.Signer) (chain.Prepared, error) {
	if w.down {
		return chain.Prepared{}, chain.ErrDown
	}
	has := map[sign.Key]bool{w.by.Key(): true}
	for _, o := range others {
		has[o.Key()] = has[o.Key()] || !w.s.away[o.Key()]
	}
	signers := map[sign.Key]bool{w.by.Key(): true}
	h := binary.LittleEndian.AppendUint64(nil, w.s.slot)
	by := w.by.Key()
	h = append(h, by[:]...)
	for _, i := range in {
		for _, m := range i.Accounts {
			if m.Signer {
				signers[m.Key] = true
			}
			h = append(h, m.Key[:]...)
		}
		h = append(h, i.Data...)
	}
	for k := range signers {
		if !has[k] {
			return chain.Prepared{}, fmt.Errorf("no key for %s", k)
		}
	}
	if size := chaintest.Size(by, in, tables...); size > chain.MaxRaw {
		return chain.Prepared{}, fmt.Errorf("%w: transaction of %d bytes", chain.ErrPayment, size)
	}
	w.s.watch(in)
	id := sign.Sum(h)
	tx := chain.Prepared{ID: chain.TxID(id.String()), Raw: id[:], LastValid: w.s.slot + lifetime, Since: market.Slot(w.s.slot)}
	w.s.signed[tx.ID] = transaction{tx: tx, in: in, tables: tables}
	return tx, nil
}

func (w *wallet) Send(_ context.Context, tx chain.Prepared) error {
	if w.down {
		return chain.ErrDown
	}
	x, ok := w.s.signed[tx.ID]
	if !ok || !bytes.Equal(x.tx.Raw, tx.Raw) {
		return chain.ErrMalformed
	}
	if w.lose {
		return nil
	}
	if !slices.ContainsFunc(w.s.pool, func(p transaction) bool { return p.tx.ID == tx.ID }) {
		w.s.pool = append(w.s.pool, x)
	}
	in := slices.ContainsFunc(w.s.blocks, func(l landed) bool { return l.tx.ID == tx.ID })
	if !in && w.s.done[tx.ID].slot == 0 {
		if _, err := chaintest.Run(w.s.net.Program, w.s.tip, w.s.slot, x.in, x.tables...); err != nil {
			return fmt.Errorf("%w: %w", chain.ErrRejected, err)
		}
	}
	return nil
}

func (w *wallet) Status(_ context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if w.down {
		return chain.TxStatus{}, chain.ErrDown
	}
	if l, ok := w.s.done[tx.ID]; ok {
		if l.err != nil {
			return chain.TxStatus{State: chain.Failed, Slot: market.Slot(l.slot), Err: l.err.Error()}, nil
		}
		return chain.TxStatus{State: chain.Finalized, Slot: market.Slot(l.slot)}, nil
	}
	for _, l := range w.s.blocks {
		if l.tx.ID == tx.ID {
			if l.err != nil {
				return chain.TxStatus{State: chain.Pending, Slot: market.Slot(l.slot), Err: l.err.Error()}, nil
			}
			return chain.TxStatus{State: chain.Confirmed, Slot: market.Slot(l.slot)}, nil
		}
	}
	if w.s.root > tx.LastValid {
		return chain.TxStatus{State: chain.Expired}, nil
	}
	return chain.TxStatus{}, nil
}
