package chaintest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Programs is the model of Starling's program on a Chain, with all token accounts. A block is final FinalBlocks after
// its creation. There are no forks.
type Programs struct {
	chain *Chain
	net   escrow.Net

	mu     sync.Mutex
	lose   func(calls []svm.Instruction) bool
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
	in     []svm.Instruction
	tables []svm.Table
}

// ran is a call in a block; err is set if it had no effect.
type ran struct {
	called
	slot uint64
	err  error
}

// walletLamports is the balance of every key without SetLamports.
const walletLamports = 1_000_000_000

// NewPrograms puts only the network's account on a chain.
func NewPrograms(c *Chain, net escrow.Net) *Programs {
	p := &Programs{chain: c, net: net, final: model.New(net.Program), done: map[chain.TxID]ran{},
		signed: map[chain.TxID]called{}, poor: map[sign.Key]uint64{}, blind: map[sign.Key]error{}}
	p.final.Networks[net.Address()] = net.Account
	pool := account.PoolAddress(net.Program, net.Address(), net.Mint)
	p.final.Tokens[pool] = svm.Token{Mint: net.Mint, Owner: net.Address(), Plain: true}
	p.final.Mints[net.Mint] = model.Mint{Decimals: 6}
	p.tip = p.final.Clone()
	return p
}

// Found puts the program of a network with a new token on a chain, and completes the network's genesis and parameters.
// It returns the network's place and the program.
func Found(c *Chain, g *market.Genesis, params account.Params) (escrow.Net, *Programs, error) {
	mint, at := sign.Key(sign.Sum([]byte("mint"))), sign.Key(sign.Sum([]byte("program")))
	params.Network, params.Chain, params.StakeMint = g.Network, g.Chain, mint
	params.Mints = []account.MintTerms{account.DefaultTerms(mint, g.Decimals)}
	net, err := escrow.NewNet(at, account.NewNetwork(params), mint)
	if err != nil {
		return escrow.Net{}, nil, err
	}
	g.Program, g.Escrow, g.Mint = net.Program, net.Address(), net.Mint
	return net, NewPrograms(c, net), nil
}

// Mint mints tokens for an owner. The owner's key may spend them.
func (p *Programs) Mint(owner sign.Key, amount market.Amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := svm.TokenAccount(owner, p.net.Mint)
	for _, s := range []*model.State{p.final, p.tip} {
		s.Tokens[at] = svm.Token{Mint: p.net.Mint, Owner: owner, Amount: s.Tokens[at].Amount + uint64(amount),
			Plain: true}
		m := s.Mints[p.net.Mint]
		m.Supply += uint64(amount)
		s.Mints[p.net.Mint] = m
	}
	p.minted += uint64(amount)
}

// SetLamports sets a key's reported lamports; with 0, it cannot pay for a signature. Fees and rent do not reduce them.
func (p *Programs) SetLamports(key sign.Key, lamports uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poor[key] = lamports
}

// Lose has transactions never reach a block for which lose answers true; nil: none.
func (p *Programs) Lose(lose func(calls []svm.Instruction) bool) {
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

// away reports whether the chain is unreachable.
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

// Calls lists the program's finalized calls in order.
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
			if name := program.CallName(p.net.Program, in); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// Check returns an error if tokens were made or lost: tokens may only be missing because they were burned, up to the
// sum of the fees.
func (p *Programs) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum uint64
	for _, t := range p.tip.Tokens {
		sum += t.Amount
	}
	if supply := p.tip.Mints[p.net.Mint].Supply; sum != supply || supply > p.minted {
		return fmt.Errorf("chaintest: %d base units are held, the supply is %d and %d were minted",
			sum, supply, p.minted)
	}
	return nil
}

var _ escrow.Ledger = (*ProgramLedger)(nil)
