package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
)

// What is earned is claimed by transactions, and their fees are paid by this peer's key. A peer that cannot pay them sells nothing: else it
// would lose all that it earns.

const (
	// claimFees is how many lamports the claims of one lease may take.
	claimFees = 100_000
	// feesEvery is how often the key's lamports are looked up, feesTimeout how long the answer is waited for.
	feesEvery   = 5 * time.Second
	feesTimeout = 2 * time.Second
)

// feeBase is what the key needs for its first claim: its own rent, and that of the token account that is paid into.
var feeBase = program.Rent(0) + program.Rent(program.TokenSize)

// fees knows whether the key can pay the claims of what is sold.
type fees struct {
	funds func(context.Context) (chain.Funds, error) // nil where nothing is claimed

	mu    sync.Mutex
	known bool
	have  uint64 // lamports
}

// look asks the chain. While it does not answer, what is known counts.
func (f *fees) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, feesTimeout)
	defer cancel()
	got, err := f.funds(ctx)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.have = true, got.Lamports
}

// short says in words that the key cannot pay for the claims of so many leases; "" where it can, or nothing is known of it.
func (f *fees) short(leases int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	need := feeBase + uint64(leases)*claimFees
	if !f.known || f.have >= need {
		return ""
	}
	return fmt.Sprintf("its key holds %s SOL, and the fees of claiming what it earns may take %s SOL", chain.FormatSOL(f.have), chain.FormatSOL(need))
}

// live counts the leases and holds that are not over.
func (p *Provider) live() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.book.Records() {
		if r.State.Live() {
			n++
		}
	}
	return n
}

// feeless says why nothing can be sold for want of fees: "" where something can. more is how many leases are to be sold.
func (p *Provider) feeless(more int) string {
	if p.fees.funds == nil {
		return ""
	}
	return p.fees.short(p.live() + more)
}

// watchFees looks the key's lamports up until ctx ends, and takes the offers back while they are too few.
func (p *Provider) watchFees(ctx context.Context) {
	if p.fees.funds == nil {
		return
	}
	t := time.NewTicker(feesEvery)
	defer t.Stop()
	last := ""
	for {
		p.fees.look(ctx)
		why := p.feeless(1)
		switch {
		case why != "" && last == "":
			p.cfg.Log.Warn("nothing is sold: "+why+"; send it some SOL", "key", p.self)
		case why == "" && last != "":
			p.cfg.Log.Info("there is SOL for fees again: offers are made")
		}
		if (why == "") != (last == "") {
			p.mu.Lock()
			p.offerChanged()
			p.mu.Unlock()
		}
		last = why
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
