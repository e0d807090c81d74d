// Package chaintest is an in-memory implementation of chain.Ledger and chain.MemoLedger. It simulates the faults of a
// chain: lost, late and repeated transactions, forks of confirmed blocks, and endpoints that do not answer. It also has
// the conformance test for all implementations. Its tokens are those of Programs.
//
// Time passes only when Advance is called.
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
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// As on Solana: blocks that a transaction stays valid for, and blocks until one is final.
const (
	ValidBlocks = 150
	FinalBlocks = 32
)

// Fate is the network's treatment of one sending of a transaction. The zero Fate: into the next block.
type Fate struct {
	Drop      bool // it never reaches a leader
	Delay     int  // blocks that it waits
	LoseReply bool // it is taken, but Send answers chain.ErrDown
}

// Config of a Chain. The zero Config is a chain without trouble.
type Config struct {
	// called under the lock for the n-th Send of a transaction, from 0; nil: no trouble
	Fate func(id chain.TxID, sending int) Fate
}

// Chain is one chain in memory, seen by any number of keys.
type Chain struct {
	cfg Config

	mu       sync.Mutex
	slot     market.Slot
	blocks   []block // blocks[i] has height i+1
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
	id chain.TxID
	tx note
}

type waiting struct {
	id     chain.TxID
	height int // not before this block
}

// NewChain makes a chain of FinalBlocks empty blocks.
func NewChain(cfg Config) *Chain {
	c := &Chain{cfg: cfg, sent: map[chain.TxID][]byte{}, sendings: map[chain.TxID]int{}, where: map[chain.TxID]int{}}
	c.Advance(FinalBlocks)
	return c
}

// Genesis is the chain's genesis hash. All chains of this package share it.
func (c *Chain) Genesis() sign.Hash { return sign.Sum([]byte("chaintest")) }

// SetDown makes every call of every ledger fail with chain.ErrDown, or ends that. Blocks continue.
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

// include puts a transaction into the newest block, unless it is too old or already in the chain.
func (c *Chain) include(id chain.TxID, height int) {
	tx, err := unmarshalNote(c.sent[id])
	if _, twice := c.where[id]; err != nil || twice || uint64(height) > tx.lastValid {
		return
	}
	c.blocks[height-1].txs = append(c.blocks[height-1].txs, landed{id: id, tx: tx})
	c.where[id] = height
}

// Fork removes up to depth of the newest blocks, none that is final, and returns their number. A transaction of theirs
// waits for a block again if keep returns true for it; otherwise it is lost.
func (c *Chain) Fork(depth int, keep func(chain.TxID) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	depth = min(depth, len(c.blocks)-c.final)
	for range depth {
		last := c.blocks[len(c.blocks)-1]
		c.blocks = c.blocks[:len(c.blocks)-1]
		for _, l := range slices.Backward(last.txs) {
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

// Ledger is the chain as a key sees it.
type Ledger struct {
	chain *Chain
	key   sign.Key
}

// Ledger writes memos for a key.
func (c *Chain) Ledger(key sign.Key) *Ledger { return &Ledger{chain: c, key: key} }

var (
	_ chain.Ledger     = (*Ledger)(nil)
	_ chain.MemoLedger = (*Ledger)(nil)
	_ chain.Blocks     = (*Ledger)(nil)
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
	// the first block is final
	return chain.Tip{Confirmed: blocks[len(blocks)-2].slot, Final: blocks[max(l.chain.final, 1)-1].slot}, nil
}

// Block is final when FinalBlocks follow it. Its hash is a function of its slot, so only tests may rely on it.
func (l *Ledger) Block(ctx context.Context, from market.Slot) (chain.Block, error) {
	if err := l.lock(ctx); err != nil {
		return chain.Block{}, err
	}
	defer l.chain.mu.Unlock()
	for height := 1; height <= l.chain.final; height++ {
		if b := l.chain.blocks[height-1]; b.slot >= from {
			return chain.Block{Slot: b.slot, Hash: sign.Sum([]byte("chaintest block"),
				binary.LittleEndian.AppendUint64(nil, uint64(b.slot)))}, nil
		}
	}
	return chain.Block{}, fmt.Errorf("chaintest: a final block of slot %d or later: %w", from, chain.ErrNotFound)
}

// Balance is none: the tokens are those of Programs.
func (l *Ledger) Balance(ctx context.Context, _ sign.Key) (market.Amount, error) {
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	l.chain.mu.Unlock()
	return 0, nil
}

// SignMemo encodes the transaction. The newest confirmed block serves as the recent blockhash.
func (l *Ledger) SignMemo(ctx context.Context, memo []byte) (chain.Prepared, error) {
	if err := chain.CheckMemo(memo); err != nil {
		return chain.Prepared{}, err
	}
	if err := l.lock(ctx); err != nil {
		return chain.Prepared{}, err
	}
	defer l.chain.mu.Unlock()
	c := l.chain
	height := len(c.blocks) - 1
	tx := note{author: l.key, lastValid: uint64(height + ValidBlocks), since: c.blocks[height-1].slot, memo: memo}
	raw := tx.marshal()
	return chain.Prepared{ID: idOf(raw), Raw: raw, LastValid: tx.lastValid, Since: tx.since}, nil
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
	if _, err := unmarshalNote(tx.Raw); err != nil || idOf(tx.Raw) != tx.ID {
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
	status := chain.TxStatus{State: chain.Pending, Slot: in.slot}
	switch {
	case height <= c.final:
		status.State = chain.Finalized
	case height < len(c.blocks):
		status.State = chain.Confirmed
	}
	return status, nil
}

// Anchored returns no root, since a chain without Programs has no program. Readers may require the method.
func (l *Ledger) Anchored(ctx context.Context, _ sign.Key, _ sign.Hash) (account.Anchored, error) {
	if err := l.lock(ctx); err != nil {
		return account.Anchored{}, err
	}
	l.chain.mu.Unlock()
	return account.Anchored{}, chain.ErrNotFound
}

// AnchorIn finds none either.
func (l *Ledger) AnchorIn(ctx context.Context, _ chain.TxID) (account.Anchored, error) {
	return l.Anchored(ctx, sign.Key{}, sign.Hash{})
}

// Memo reads the memo of a final transaction.
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
		if t.id == id {
			return slices.Clone(t.tx.memo), c.blocks[height-1].slot, nil
		}
	}
	return nil, 0, fmt.Errorf("memo of transaction %s: %w", id, chain.ErrNotFound)
}
