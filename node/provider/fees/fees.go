// Package fees checks whether a provider's key can pay for the transactions that claim its earnings. A peer that cannot
// sells nothing: it would lose its earnings.
package fees

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
)

const (
	// claims is the number of claims of a lease that the key has to be able to pay for: the first and the last one.
	// Earnings meanwhile pay for others.
	claims = 2
	// Every is how often the key's lamports are read, timeout how long the answer is waited for.
	Every   = 5 * time.Second
	timeout = 2 * time.Second
)

// feeBase is the amount that the key needs for its first claim: rent for itself and for the token account of earnings.
var feeBase = svm.Rent(0) + svm.Rent(svm.TokenSize)

// Fees checks whether the key can pay for the claims of sold leases.
type Fees struct {
	funds func(context.Context) (chain.Funds, error) // nil if nothing is claimed
	bids  chain.Fees
	units uint8 // decimals of the token

	mu    sync.Mutex
	known bool
	have  uint64 // lamports
}

// Look reads the key's funds from the chain. If the chain does not answer, the last known funds count.
func (f *Fees) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
func (f *Fees) claimsOf(most market.Amount, keys int) uint64 {
	return claims * f.bids.CostAtMost(1+uint64(keys), most, f.units)
}

// short returns the reason why the key cannot pay most lamports for claims; "" if it can, or if its funds are unknown.
func (f *Fees) short(most uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	need := feeBase + most
	if !f.known || f.have >= need {
		return ""
	}
	return fmt.Sprintf("balance of the peer's key: got %s SOL, want %s SOL for the fees of its claims",
		chain.FormatSOL(f.have), chain.FormatSOL(need))
}

// New returns the fees of claims on a network whose tokens have this number of decimals.
func New(funds func(context.Context) (chain.Funds, error), bids chain.Fees, decimals uint8) *Fees {
	return &Fees{funds: funds, bids: bids, units: decimals}
}

// Live returns the largest cost of claims of the live leases and holds, in lamports, and their number.
func (f *Fees) Live(book lease.Book) (most uint64, live int) {
	for r := range book.Records() {
		if !r.State.Live() {
			continue
		}
		live++
		if r.Core == nil {
			most += f.claimsOf(0, 1)
		} else {
			most += f.claimsOf(r.Core.Cap, max(1, int(r.Keys.Threshold)))
		}
	}
	return most, live
}

// Short returns the reason why no further lease can be sold because of missing fees: "" if one can.
func (f *Fees) Short(book lease.Book) string {
	most, _ := f.Live(book)
	return f.short(most + f.claimsOf(0, 1))
}
