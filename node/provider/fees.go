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

// Earnings are claimed by transactions, and this peer's key pays their fees. A peer that cannot pay them sells nothing:
// it would lose its earnings.

const (
	// claims is the number of claims of a lease that the key has to be able to pay for: the first and the last one.
	// Earnings meanwhile pay for others.
	claims = 2
	// feesEvery is how often the key's lamports are looked up, feesTimeout how long the answer is waited for.
	feesEvery   = 5 * time.Second
	feesTimeout = 2 * time.Second
)

// feeBase is the amount that the key needs for its first claim: its own rent, and that of the token account for
// earnings.
var feeBase = program.Rent(0) + program.Rent(program.TokenSize)

// fees knows whether the key can pay the claims of sold leases.
type fees struct {
	funds func(context.Context) (chain.Funds, error) // nil where nothing is claimed
	bids  chain.Fees
	units uint8 // decimals of the token

	mu    sync.Mutex
	known bool
	have  uint64 // lamports
}

// look reads the key's funds from the chain. While it does not answer, the last known funds count.
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

// claimsOf is the largest cost of a lease's claims, in lamports, by its cap and the number of keys that sign its
// vouchers.
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

// claimFees is the largest cost of the claims of the leases and holds that are not over, in lamports, and the number of
// these.
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
