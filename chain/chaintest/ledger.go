// Package chaintest is a token ledger in memory that keeps the contract of chain.Ledger, with every trouble a chain can make
// (lost, late and repeated transactions, forks back from confirmed, endpoints that do not answer), and the conformance
// test that it shares with the real one.
//
// Time passes only when Advance is called: nothing here runs by itself.
package chaintest

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mr-tron/base58"
	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// As on Solana: blocks that a transaction stays valid for, and blocks until one is final.
const (
	ValidBlocks = 150
	FinalBlocks = 32
)

// Fate is what the network makes of one sending of a transaction. The zero Fate: into the next block.
type Fate struct {
	Drop      bool // it never reaches a leader
	Delay     int  // blocks that it waits
	LoseReply bool // it is taken, but Send answers chain.ErrDown
}

// Config of a Chain. The zero Config is a chain without trouble.
type Config struct {
	MaxPayouts int                                   // per transaction; 0 means 8
	Fate       func(id chain.TxID, sending int) Fate // called under the lock for the n-th Send of a transaction, from 0; nil: no trouble
}

// Chain is one ledger in memory, seen by any number of payers.
type Chain struct {
	cfg Config

	mu       sync.Mutex
	slot     market.Slot
	blocks   []block // blocks[i] has height i+1
	balances map[sign.Key]market.Amount
	paid     map[market.LeaseID]market.Amount
	limits   map[sign.Key]market.Amount // delegated allowances; an owner that is missing has no limit
	minted   market.Amount
	queue    []waiting
	sent     map[chain.TxID][]byte // everything that ever reached the network
	sendings map[chain.TxID]int
	where    map[chain.TxID]int // height of the block that holds it
	down     bool
	final    int // height of the newest final block; never steps back
}

type block struct {
	slot market.Slot
	txs  []landed
}

type landed struct {
	id  chain.TxID
	tx  transfer
	err string
}

type waiting struct {
	id     chain.TxID
	height int // not before this block
}

// NewChain makes a chain of FinalBlocks empty blocks.
func NewChain(cfg Config) *Chain {
	if cfg.MaxPayouts == 0 {
		cfg.MaxPayouts = 8
	}
	c := &Chain{cfg: cfg, balances: map[sign.Key]market.Amount{}, limits: map[sign.Key]market.Amount{},
		paid: map[market.LeaseID]market.Amount{},
		sent: map[chain.TxID][]byte{}, sendings: map[chain.TxID]int{}, where: map[chain.TxID]int{}}
	c.Advance(FinalBlocks)
	return c
}

// Genesis is the chain's genesis hash. All chains of this package share it.
func (c *Chain) Genesis() sign.Hash { return sign.Sum([]byte("chaintest")) }

// Mint gives an owner tokens out of nothing.
func (c *Chain) Mint(owner sign.Key, amount market.Amount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balances[owner] += amount
	c.minted += amount
}

// Approve limits what ledgers of the owner may still spend, as a delegate's allowance does.
func (c *Chain) Approve(owner sign.Key, amount market.Amount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[owner] = amount
}

// SetDown makes every call of every ledger fail with chain.ErrDown, or ends that. Blocks go on.
func (c *Chain) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// Advance makes n blocks.
func (c *Chain) Advance(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.slot++
		c.blocks = append(c.blocks, block{slot: c.slot})
		height := len(c.blocks)
		var later []waiting
		for _, w := range c.queue {
			if w.height > height {
				later = append(later, w)
			} else {
				c.include(w.id, height)
			}
		}
		c.queue = later
		c.final = max(c.final, height-FinalBlocks)
	}
}

// include executes a transaction in the newest block, unless it is too old or already in the chain.
func (c *Chain) include(id chain.TxID, height int) {
	tx, err := unmarshalTransfer(c.sent[id])
	if _, twice := c.where[id]; err != nil || twice || uint64(height) > tx.lastValid {
		return
	}
	l := landed{id: id, tx: tx}
	var sum market.Amount
	for _, p := range tx.payouts {
		sum += p.Amount
	}
	limit, limited := c.limits[tx.owner]
	switch {
	case c.balances[tx.owner] < sum:
		l.err = "insufficient funds"
	case limited && limit < sum:
		l.err = "insufficient allowance"
	default:
		c.move(tx, 1)
	}
	c.blocks[height-1].txs = append(c.blocks[height-1].txs, l)
	c.where[id] = height
}

// move applies a transfer, or takes it back with sign -1.
func (c *Chain) move(tx transfer, direction int) {
	_, limited := c.limits[tx.owner]
	for _, p := range tx.payouts {
		from, to := tx.owner, p.To
		amount := p.Amount
		if direction < 0 {
			amount = -amount // wraps, and so do the sums below: back to where they were
		}
		c.balances[from] -= amount
		c.balances[to] += amount
		c.paid[p.Lease] += amount
		if limited {
			c.limits[tx.owner] -= amount
		}
	}
}

// Fork throws away the newest blocks, at most those that are not final, and says how many. Of their transactions those
// for which keep answers true wait for a block again; the others are lost.
func (c *Chain) Fork(depth int, keep func(chain.TxID) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	depth = min(depth, len(c.blocks)-c.final)
	for range depth {
		last := c.blocks[len(c.blocks)-1]
		c.blocks = c.blocks[:len(c.blocks)-1]
		for _, l := range slices.Backward(last.txs) {
			if l.err == "" {
				c.move(l.tx, -1)
			}
			delete(c.where, l.id)
			if keep(l.id) {
				c.queue = append(c.queue, waiting{id: l.id})
			}
		}
	}
	return depth
}

// Replay sends everything again that ever reached the network, as any stranger may.
func (c *Chain) Replay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.sent)) {
		c.queue = append(c.queue, waiting{id: id})
	}
}

// Paid is what the chain, up to its newest block, paid for a lease.
func (c *Chain) Paid(lease market.LeaseID) market.Amount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paid[lease]
}

// Check reports an error when tokens were made or lost.
func (c *Chain) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum market.Amount
	for _, amount := range c.balances {
		sum += amount
	}
	if sum != c.minted {
		return fmt.Errorf("chaintest: %d base units are held and %d were minted", sum, c.minted)
	}
	return nil
}

// Ledger is the chain as an owner sees it. It implements chain.Ledger.
type Ledger struct {
	chain *Chain
	owner sign.Key
}

// Ledger pays from the owner's balance.
func (c *Chain) Ledger(owner sign.Key) *Ledger { return &Ledger{chain: c, owner: owner} }

var (
	_ chain.Ledger = (*Ledger)(nil)
	_ chain.Blocks = (*Ledger)(nil)
)

// lock returns with the chain locked, or with the error that every call gives now.
func (l *Ledger) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.chain.mu.Lock()
	if l.chain.down {
		l.chain.mu.Unlock()
		return fmt.Errorf("chaintest: %w", chain.ErrDown)
	}
	return nil
}

// Slot is that of the newest confirmed block: the last but one.
func (l *Ledger) Slot(ctx context.Context) (market.Slot, error) {
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	defer l.chain.mu.Unlock()
	return l.chain.blocks[len(l.chain.blocks)-2].slot, nil
}

// Tip implements chain.Ledger.
func (l *Ledger) Tip(ctx context.Context) (chain.Tip, error) {
	if err := l.lock(ctx); err != nil {
		return chain.Tip{}, err
	}
	defer l.chain.mu.Unlock()
	blocks := l.chain.blocks
	return chain.Tip{Confirmed: blocks[len(blocks)-2].slot, Final: blocks[max(l.chain.final, 1)-1].slot}, nil // the first block is final
}

// Block is final when FinalBlocks follow it. Its hash nobody can tell before it is there, but who reads this line.
func (l *Ledger) Block(ctx context.Context, from market.Slot) (chain.Block, error) {
	if err := l.lock(ctx); err != nil {
		return chain.Block{}, err
	}
	defer l.chain.mu.Unlock()
	for height := 1; height <= l.chain.final; height++ {
		if b := l.chain.blocks[height-1]; b.slot >= from {
			return chain.Block{Slot: b.slot, Hash: sign.Sum([]byte("chaintest block"), binary.LittleEndian.AppendUint64(nil, uint64(b.slot)))}, nil
		}
	}
	return chain.Block{}, fmt.Errorf("chaintest: a final block of slot %d or later: %w", from, chain.ErrNotFound)
}

// Balance leaves out the newest block, which is not confirmed.
func (l *Ledger) Balance(ctx context.Context, owner sign.Key) (market.Amount, error) {
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	defer l.chain.mu.Unlock()
	return l.chain.confirmed(owner), nil
}

func (c *Chain) confirmed(owner sign.Key) market.Amount {
	sum := c.balances[owner]
	for _, t := range c.blocks[len(c.blocks)-1].txs {
		for _, p := range t.tx.payouts {
			if t.err == "" && p.To == owner {
				sum -= p.Amount
			}
			if t.err == "" && t.tx.owner == owner {
				sum += p.Amount
			}
		}
	}
	return sum
}

// Prepare encodes the payment; the newest confirmed block stands for the recent blockhash.
func (l *Ledger) Prepare(ctx context.Context, p chain.Payment) (chain.Prepared, error) {
	if err := l.lock(ctx); err != nil {
		return chain.Prepared{}, err
	}
	defer l.chain.mu.Unlock()
	c := l.chain
	if err := p.Check(); err != nil {
		return chain.Prepared{}, err
	}
	height := len(c.blocks) - 1
	tx := transfer{owner: l.owner, lastValid: uint64(height + ValidBlocks), since: c.blocks[height-1].slot, memo: p.Memo,
		payouts: p.Payouts[:min(len(p.Payouts), c.cfg.MaxPayouts)]}
	var sum market.Amount
	for _, p := range tx.payouts {
		sum += p.Amount
	}
	if have := c.confirmed(l.owner); have < sum {
		return chain.Prepared{}, fmt.Errorf("%w: %d needed, balance %d", chain.ErrAllowance, sum, have)
	}
	if limit, limited := c.limits[l.owner]; limited && limit < sum {
		return chain.Prepared{}, fmt.Errorf("%w: %d needed, allowance %d", chain.ErrAllowance, sum, limit)
	}
	raw := tx.marshal()
	return chain.Prepared{ID: idOf(raw), Raw: raw, LastValid: tx.lastValid, Since: tx.since, Count: len(tx.payouts)}, nil
}

func idOf(raw []byte) chain.TxID {
	sum := sign.Sum(raw)
	return chain.TxID(base58.Encode(sum[:]))
}

// Send queues the transaction, as Config.Fate has it.
func (l *Ledger) Send(ctx context.Context, tx chain.Prepared) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.chain.mu.Unlock()
	c := l.chain
	if _, err := unmarshalTransfer(tx.Raw); err != nil || idOf(tx.Raw) != tx.ID {
		return fmt.Errorf("chaintest: transaction %s: %w", tx.ID, chain.ErrMalformed)
	}
	var fate Fate
	if c.cfg.Fate != nil {
		fate = c.cfg.Fate(tx.ID, c.sendings[tx.ID])
	}
	c.sendings[tx.ID]++
	if !fate.Drop {
		c.sent[tx.ID] = slices.Clone(tx.Raw)
		c.queue = append(c.queue, waiting{id: tx.ID, height: len(c.blocks) + fate.Delay})
	}
	if fate.LoseReply {
		return fmt.Errorf("chaintest: reply lost: %w", chain.ErrDown)
	}
	return nil
}

// Status looks the transaction up in the present fork.
func (l *Ledger) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if err := l.lock(ctx); err != nil {
		return chain.TxStatus{}, err
	}
	defer l.chain.mu.Unlock()
	c := l.chain
	height, found := c.where[tx.ID]
	if !found {
		if uint64(c.final) > tx.LastValid {
			return chain.TxStatus{State: chain.Expired}, nil
		}
		return chain.TxStatus{}, nil
	}
	in := c.blocks[height-1]
	i := slices.IndexFunc(in.txs, func(t landed) bool { return t.id == tx.ID })
	status := chain.TxStatus{State: chain.Pending, Slot: in.slot, Err: in.txs[i].err}
	switch final := height <= c.final; {
	case final && status.Err != "":
		status.State = chain.Failed
	case final:
		status.State = chain.Finalized
	case height < len(c.blocks) && status.Err == "":
		status.State = chain.Confirmed
	}
	return status, nil
}

// Memo reads the memo of a final transaction.
// Anchored reads no root: a chain without Programs has no program. It is there for readers that may look for one.
func (l *Ledger) Anchored(context.Context, sign.Key, sign.Hash) (program.Anchored, error) {
	return program.Anchored{}, chain.ErrNotFound
}

// AnchorIn finds none either.
func (l *Ledger) AnchorIn(context.Context, chain.TxID) (program.Anchored, error) {
	return program.Anchored{}, chain.ErrNotFound
}

func (l *Ledger) Memo(ctx context.Context, id chain.TxID) ([]byte, market.Slot, error) {
	if err := l.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer l.chain.mu.Unlock()
	c := l.chain
	height, found := c.where[id]
	if !found || height > c.final {
		return nil, 0, fmt.Errorf("transaction %s: %w", id, chain.ErrNotFound)
	}
	for _, t := range c.blocks[height-1].txs {
		if t.id == id && t.err == "" && len(t.tx.memo) > 0 {
			return slices.Clone(t.tx.memo), c.blocks[height-1].slot, nil
		}
	}
	return nil, 0, fmt.Errorf("memo of transaction %s: %w", id, chain.ErrNotFound)
}
