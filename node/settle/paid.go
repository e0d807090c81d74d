package settle

import (
	"context"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// paidFresh is for how long what the chain said of a lease is believed, also that it knows nothing of it.
	paidFresh = 10 * time.Second
	// maxPaid bounds the leases that are remembered.
	maxPaid = 4096
)

// Payments tells what leases were paid, also those of others. It may be used by many goroutines.
type Payments struct {
	chain   Chain
	network *Network
	now     func() time.Time

	mu   sync.Mutex
	seen map[sign.Hash]paidSeen // by lease and funding
}

// paidSeen is what the chain said.
type paidSeen struct {
	amount market.Amount
	err    error
	at     time.Time
}

// NewPayments asks nothing yet.
func NewPayments(c Chain, n *Network, now func() time.Time) *Payments {
	return &Payments{chain: c, network: n, now: now, seen: map[sign.Hash]paidSeen{}}
}

// Of is what was paid for a lease for ever, fee included, by the escrow that a funding names: see escrow.PaidOf for its errors. An
// answer of less than enough may be some seconds old, and so may an error.
func (p *Payments) Of(ctx context.Context, core market.LeaseCore, f escrow.Funding, enough market.Amount) (market.Amount, error) {
	id := core.ID()
	key := sign.Sum(id[:], f.Marshal())
	p.mu.Lock()
	s, known := p.seen[key]
	p.mu.Unlock()
	if known && (s.err == nil && s.amount >= enough || p.now().Sub(s.at) < paidFresh) { // what was paid only grows
		return s.amount, s.err
	}
	net, err := p.network.Get(ctx)
	if err != nil {
		return 0, err
	}
	s = paidSeen{}
	view, err := p.chain.Look(ctx, net.EscrowOf(core, f), []uint16{f.Tranche}, escrow.Finalized)
	if err == nil {
		s.amount, err = escrow.PaidOf(net, view, core, f)
	}
	if s.err = err; ctx.Err() != nil {
		return 0, err // it says nothing about the lease
	}
	s.at = p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= maxPaid {
		clear(p.seen)
	}
	p.seen[key] = s
	return s.amount, s.err
}
