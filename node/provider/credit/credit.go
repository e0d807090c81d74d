// Package credit is a provider's knowledge of the money of its buyers: the accounts that back an order, payments and
// broken promises of earlier leases, and units that were set aside for nothing.
//
// Keys are free. So a newcomer has as much credit as its account holds, all newcomers together are bounded, and
// everything that is remembered of keys is bounded too.
package credit

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/provider/lapses"
	"github.com/starling-network/starling/p2p/admit"
)

// Ledger keeps the lapses of buyers beside the lease book. ledger.Ledger implements it.
type Ledger interface {
	// Lapses returns the lapses as they stand.
	Lapses() lapses.Lapses
	// Paid forgets the lapses of a peer that paid.
	Paid(ctx context.Context, peer sign.Key) error
}

// Credit is a provider's knowledge of its buyers. New starts nothing; Run does.
type Credit struct {
	self, mint sign.Key
	broken     *remembered // did not fund a lease
	payers     *remembered // paid for a lease
	ledger     Ledger
	purses     *purses
}

// New reads the records of an earlier process. self is the provider's key, and mint the network's token.
func New(ctx context.Context, s journal.Store, c Chain, l Ledger, self, mint sign.Key) (*Credit, error) {
	now := time.Now()
	broken, err := loadRemembered(ctx, s, unfundedTable, now)
	if err != nil {
		return nil, err
	}
	payers, err := loadRemembered(ctx, s, fundedTable, now)
	if err != nil {
		return nil, err
	}
	return &Credit{self: self, mint: mint, broken: broken, payers: payers, ledger: l, purses: newPurses(c)}, nil
}

// Run reads accounts that orders wait for until ctx ends.
func (c *Credit) Run(ctx context.Context) { c.purses.run(ctx) }

// Trusted reports whether a buyer paid here before and never left a lease unfunded.
func (c *Credit) Trusted(buyer sign.Key, now time.Time) bool {
	return c.payers.has(buyer, now) && !c.broken.has(buyer, now)
}

// Broke records a buyer that did not fund a lease; after an error only in this process.
func (c *Credit) Broke(ctx context.Context, buyer sign.Key) error {
	return c.broken.add(ctx, buyer, time.Now())
}

// Paid records peers that paid for a lease, and forgets their lapses.
func (c *Credit) Paid(ctx context.Context, peers ...sign.Key) error {
	var errs []error
	for _, k := range peers {
		errs = append(errs, c.payers.add(ctx, k, time.Now()), c.ledger.Paid(ctx, k))
	}
	return errors.Join(errs...)
}

// Backing returns the security behind an order, or refuses the order. standing and from are of its peer, if the order
// came from the peer itself; otherwise they are those of a stranger.
func (c *Credit) Backing(
	ctx context.Context, o market.Order, standing admit.Standing, from netip.Prefix,
) (*lease.Backing, error) {
	peer, now, lapses := o.Peer(), time.Now(), c.ledger.Lapses()
	if until, why := lapses.Wait(peer, now); why != "" {
		return nil, market.Refuse(market.ReasonUnpaid, "%s; try again in %v", why, until.Sub(now).Round(time.Second))
	}
	payer := c.paid(o, now)
	with := &lease.Backing{Newcomer: !payer, Wary: lapses.Wary(now)}
	found, err := c.purses.get(ctx, standing, from, c.accounts(o)...)
	switch {
	case err != nil && (payer || standing >= admit.Counterparty):
		with.Funds = math.MaxUint64 // it is known here: the chain's absence does not keep it out
		return with, nil
	case errors.Is(err, errFundsBusy):
		return nil, market.Refuse(market.ReasonUnseen, "%v; try again", err)
	case err != nil:
		return nil, market.Refuse(market.ReasonUnseen,
			"balance of your account: %v; try again", chain.ErrDown)
	}
	with.Funds = c.spendable(peer, found)
	return with, nil
}

// Recent returns the security behind an order of a buyer that paid here, at most a minute old. It returns nil if none
// is known, and while the provider is wary: money that moves on between keys would otherwise back holds of each of
// them. It does not wait; half a minute after the last request to the chain, it starts a new one.
func (c *Credit) Recent(o market.Order) *lease.Backing {
	peer, now, lapses := o.Peer(), time.Now(), c.ledger.Lapses()
	if _, why := lapses.Wait(peer, now); why != "" || lapses.Wary(now) || !c.paid(o, now) {
		return nil
	}
	found := c.purses.recent(c.accounts(o)...)
	if found == nil {
		return nil
	}
	return &lease.Backing{Funds: c.spendable(peer, found)}
}

// paid reports whether the buyer or the peer of an order paid here before.
func (c *Credit) paid(o market.Order, now time.Time) bool {
	return c.payers.has(o.Buyer, now) || c.payers.has(o.Peer(), now)
}

// accounts returns the accounts that may back an order.
func (c *Credit) accounts(o market.Order) []sign.Key {
	out := []sign.Key{svm.TokenAccount(o.Peer(), c.mint)}
	if !o.Funds.IsZero() && o.Funds != out[0] {
		out = append(out, o.Funds)
	}
	return out
}

// spendable returns how much of accounts a peer can pay leases of this provider with.
func (c *Credit) spendable(peer sign.Key, in []escrow.Purse) (sum market.Amount) {
	for _, f := range in {
		sum = sum.Plus(f.Spendable(peer)).Plus(f.Hires(peer, c.self))
	}
	return sum
}
