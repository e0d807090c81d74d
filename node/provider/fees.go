package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
)

// What is earned is claimed by transactions, and their fees are paid by this peer's key. A peer that cannot pay them sells nothing: else it
// would lose all that it earns.

const (
	// claims is how many of a lease the key has to be able to pay for: the first and the last one. What is earned meanwhile pays for others.
	claims = 2
	// feesEvery is how often the key's lamports are looked up, feesTimeout how long the answer is waited for.
	feesEvery   = 5 * time.Second
	feesTimeout = 2 * time.Second
)

// feeBase is what the key needs for its first claim: its own rent, and that of the token account that is paid into.
var feeBase = program.Rent(0) + program.Rent(program.TokenSize)

// fees knows whether the key can pay the claims of what is sold.
type fees struct {
	funds func(context.Context) (chain.Funds, error) // nil where nothing is claimed
	bids  chain.Fees
	units uint8 // decimals of the token

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

// claimsOf is what the claims of a lease can cost, in lamports, by its cap and how many keys sign its vouchers.
func (f *fees) claimsOf(most market.Amount, keys int) uint64 {
	return claims * f.bids.CostAtMost(1+uint64(keys), most, f.units)
}

// short says in words that the key cannot pay so many lamports for claims; "" where it can, or nothing is known of it.
func (f *fees) short(most uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	need := feeBase + most
	if !f.known || f.have >= need {
		return ""
	}
	return fmt.Sprintf("its key holds %s SOL, and the fees of claiming what it earns may take %s SOL", chain.FormatSOL(f.have), chain.FormatSOL(need))
}

// claimFees is what the claims of the leases and holds that are not over can cost, in lamports, and how many those are.
func (p *Provider) claimFees() (most uint64, live int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.book.Records() {
		if !r.State.Live() {
			continue
		}
		live++
		if r.Core == nil {
			most += p.fees.claimsOf(0, 1)
		} else {
			most += p.fees.claimsOf(r.Core.Cap, max(1, int(r.Keys.Threshold)))
		}
	}
	return most, live
}

// feeless says why no further lease can be sold for want of fees: "" where one can.
func (p *Provider) feeless() string {
	if p.fees.funds == nil {
		return ""
	}
	most, _ := p.claimFees()
	return p.fees.short(most + p.fees.claimsOf(0, 1))
}

// sells reports whether anything is for sale, or sold.
func (p *Provider) sells() bool {
	if len(p.cfg.Lots) > 0 && !p.paused() {
		return true
	}
	_, live := p.claimFees()
	return live > 0
}

// watchFees looks the key's lamports up while something is for sale, until ctx ends, and takes the offers back while they are too few.
func (p *Provider) watchFees(ctx context.Context) {
	if p.fees.funds == nil {
		return
	}
	t := time.NewTicker(feesEvery)
	defer t.Stop()
	last := ""
	for {
		if p.sells() {
			p.fees.look(ctx)
		}
		why := p.feeless()
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
