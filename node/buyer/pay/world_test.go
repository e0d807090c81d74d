package pay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify"
)

// self is the peer, whose key owns the money.
var self = sign.NewPrivate([32]byte{1})

// wallet is the peer's money before any job.
const wallet = 10_000

// peer has jobs and leases of a test. It survives crashes, as a journal does.
type peer struct {
	mu      sync.Mutex
	leases  []Lease
	guard   *Guard
	waiting []Waiting
	notes   []trace.Step
	void    map[market.LeaseID]string
	final   map[market.LeaseID]*verify.Receipt
	placed  []Placement
	bill    Anchoring
}

func newPeer() *peer {
	return &peer{void: map[market.LeaseID]string{}, final: map[market.LeaseID]*verify.Receipt{}}
}

func (p *peer) Guard(string) (*Guard, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guard, nil
}

func (p *peer) Placed(_ context.Context, _ string, at Placement) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed = append(p.placed, at)
	return nil
}

func (p *peer) Witnesses(string) []sign.Signer { return nil }

func (p *peer) Waiting() []Waiting { return p.waiting }

func (p *peer) Note(_ string, step trace.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes, step)
}

// noted returns the details of all notes of a kind.
func (p *peer) noted(kind trace.Kind) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notes {
		if n.Kind == kind {
			out = append(out, n.Detail)
		}
	}
	return out
}

func (p *peer) Of(string) []Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.leases)
}

func (p *peer) Together(string, market.OrderID) (out []market.LeaseCore) {
	for _, l := range p.Of("") {
		out = append(out, l.Core)
	}
	return out
}

func (p *peer) Final(l market.LeaseID) (*verify.Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.final[l], nil
}

func (p *peer) Void(leases []market.LeaseID, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range leases {
		p.void[id] = reason
	}
}

func (p *peer) Retired(id market.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.leases {
		if p.leases[i].ID == id {
			p.leases[i].Retired = true
		}
	}
}

// billed is a peer as the bill of its job.
type billed struct{ *peer }

func (b billed) Owed(context.Context) (Anchoring, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bill, nil
}

func (b billed) Void(_ context.Context, id market.LeaseID, reason string) error {
	b.peer.Void([]market.LeaseID{id}, reason)
	return nil
}

// world is a chain with a network, and the peer's jobs. Use it in a bubble.
type world struct {
	t        *testing.T
	chain    *chaintest.Chain
	programs *chaintest.Programs
	genesis  market.Genesis
	peer     *peer
}

func newWorld(t *testing.T) *world {
	mint, at := sign.Key{4}, sign.Key{3}
	p := account.Params{
		Network: "test", ResponseSlots: 100, MarginSlots: 8, UnbondingSlots: 2, EvidenceSlots: 1,
		Mints: []account.MintTerms{account.DefaultTerms(mint, 6)},
	}
	net, err := escrow.NewNet(at, account.NewNetwork(p), mint)
	if err != nil {
		t.Fatal(err)
	}
	c := chaintest.NewChain(chaintest.Config{})
	w := &world{t: t, chain: c, programs: chaintest.NewPrograms(c, net), peer: newPeer()}
	w.genesis = market.Genesis{
		Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Program: at, Mint: mint,
		Escrow: net.Address(),
	}
	w.programs.Mint(self.Key(), wallet)
	return w
}

// blocks makes a block every 100 ms until ctx ends.
func (w *world) blocks(ctx context.Context) {
	for ctx.Err() == nil {
		w.chain.Advance(1)
		w.programs.Advance()
		time.Sleep(100 * time.Millisecond)
	}
}

// config is the configuration of payments of a process.
func (w *world) config(s journal.Store) Config {
	ledger := w.programs.Ledger(self.Key())
	return Config{
		Escrows: Escrows{
			Chain: ledger, Network: settle.NewNetwork(w.genesis, ledger, s), Params: escrow.DefaultParams(),
		},
		Genesis: w.genesis, Self: self.Key(), Owner: self.Key(), Store: s, Jobs: w.peer, Leases: w.peer,
		Log: slog.New(slog.DiscardHandler),
	}
}

// start starts payments on a journal, and returns them and the end of their process.
func (w *world) start(ctx context.Context, s journal.Store) (*Payments, func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	x, err := New(ctx, w.config(s))
	if err != nil {
		w.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { x.Run(ctx) })
	return x, func() { cancel(); wg.Wait() }
}

// lease is the i-th lease of an order of the job, at a cap.
func (w *world) lease(order byte, i int, limit market.Amount) Lease {
	keys, err := market.NewKeySet(1, self.Key())
	if err != nil {
		w.t.Fatal(err)
	}
	provider := sign.NewPrivate([32]byte{50, order, byte(i)}).Key()
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Rank: uint32(i), Order: market.OrderID{order}, Buyer: self.Key(),
		Provider: provider, Payout: provider, UnitsRoot: sign.Hash{1}, Terms: sign.Hash{2}, VoucherKeys: keys.Hash(),
		Rate: 1_000_000, Cap: limit, Start: 20, ActivateBefore: 300, End: 600, Nonce: market.Nonce{order, byte(i)},
	}
	if err := core.Validate(); err != nil {
		w.t.Fatal(err)
	}
	return Lease{ID: core.ID(), Job: "job", Core: core, Keys: keys}
}

// balance is the peer's money outside of escrows.
func (w *world) balance() market.Amount {
	b, err := w.programs.Ledger(self.Key()).Balance(context.Background(), self.Key())
	if err != nil {
		w.t.Error(err)
	}
	return b
}
