// Package pay receives a provider's payments from the buyers' escrows, or none on a free network.
package pay

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/billing"
	"github.com/starling-network/starling/node/provider/credit"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// claimsTable has a claims.Claims by lease id.
var claimsTable = settle.Define("claims")

// Escrows is the configuration of a provider that is paid from escrows.
type Escrows struct {
	Chain   settle.Chain
	Network *settle.Network
	Params  escrow.Params
	Fees    chain.Fees // limits of the chain's priority fees
	When    escrow.When
	// WaitFunded has work begin only when its escrow was seen on chain. Otherwise it begins at once, with the first
	// voucher's amount at risk, for buyers that paid this provider before and never left a lease unfunded, of maxStarts
	// such leases an hour.
	WaitFunded bool
}

const (
	// maxStarts is the number of leases within startsOver that start work before their escrow is confirmed. Keys are
	// free, so the bound is for all buyers together.
	maxStarts  = 16
	startsOver = time.Hour
	// fundingFirst is the pause after the first request for an escrow that is not on chain yet. Pauses double up to
	// fundingLook.
	fundingFirst = 50 * time.Millisecond
	fundingLook  = 500 * time.Millisecond
	// fundingWait bounds the time that a program's start waits for its lease's escrow. After it the buyer has to try
	// again.
	fundingWait = 2 * time.Second
)

// Ledger is the lease book. ledger.Ledger implements it.
type Ledger interface {
	// Book returns the book as it stands.
	Book() lease.Book
	// Step takes the book one event further, and returns the answer.
	Step(ctx context.Context, ev lease.Event) (lease.Effect, error)
	credit.Ledger
}

// Meters are the meters of all leases. billing.Meters implements it.
type Meters interface {
	// Find returns the meter of a lease, or nil.
	Find(l market.LeaseID) *billing.Meter
	// Go runs a function that the meters' owner waits for.
	Go(f func())
}

// Clock returns the current slot. slots.Clock implements it.
type Clock interface {
	Now(at time.Time) (market.Slot, error)
}

// Reputation records broken leases.
type Reputation interface {
	// Failed records that the buyer of a lease broke it, once or more often.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Config is the configuration of Escrowed. All of it is required.
type Config struct {
	Escrows
	Genesis    market.Genesis
	Self       sign.Key
	Store      store.Store
	Slots      Clock
	Reputation Reputation
	Ledger     Ledger
	Meters     Meters
	Log        *slog.Logger
}

// Escrowed claims the vouchers' amounts from the buyers' escrows.
type Escrowed struct {
	cfg    Config
	Credit *credit.Credit
	claims *settle.Keeper[claims.Claims]
	starts *rates.Credit[market.LeaseID] // leases that began work before their escrow was seen
}

// New reads the claims and the knowledge of buyers of an earlier process. It starts nothing; Run does.
func New(ctx context.Context, cfg Config) (*Escrowed, error) {
	x := &Escrowed{cfg: cfg, starts: rates.NewCredit[market.LeaseID](maxStarts, startsOver)}
	var err error
	if x.Credit, err = credit.New(ctx, cfg.Store, cfg.Chain, cfg.Ledger, cfg.Self, cfg.Genesis.Mint); err != nil {
		return nil, err
	}
	x.claims, err = settle.NewKeeper(ctx, settle.KeeperConfig[claims.Claims]{
		Table: claimsTable, Program: cfg.Genesis.Program, Ledger: cfg.Chain, Store: cfg.Store, Owner: owner{x},
		Log: cfg.Log,
	})
	return x, err
}

// owner implements settle.Owner with the claims of leases.
type owner struct{ *Escrowed }

// Restore implements settle.Owner.
func (x owner) Restore(ctx context.Context, state []byte) (claims.Claims, error) {
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return claims.Claims{}, err
	}
	return claims.Restore(state, net, x.cfg.When, x.cfg.Params)
}

// Over implements settle.Owner.
func (owner) Over(m claims.Claims) bool { return m.Done() }

// Looked ends a lease when its buyer withdraws its money: earnings after the network's response slots are not paid.
func (x owner) Looked(name string, v escrow.View) {
	if m, _, err := x.claims.Get(name); err == nil && m.Retired(v) {
		x.unfunded(m.Lease().ID(), "the buyer withdraws the lease's funds")
	}
}

// unfunded ends a running lease that lost its money.
func (x *Escrowed) unfunded(id market.LeaseID, reason string) {
	r, ok := x.cfg.Ledger.Book().Lease(id)
	if !ok || r.State != lease.Active {
		return
	}
	if _, err := x.cfg.Ledger.Step(context.Background(), lease.FundingWrong{Lease: id, Reason: reason}); err != nil {
		x.cfg.Log.Error("a lease without money does not end yet", "lease", id, "err", err)
	}
}

// Run claims payments, and reads the accounts of orders, until ctx ends.
func (x *Escrowed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.Credit.Run(ctx) })
	x.claims.Run(ctx)
	wg.Wait()
}

// Promised reads the buyer's data about a lease's funding, and names the escrow. It refuses leases for which nothing
// could ever be claimed.
func (x *Escrowed) Promised(ctx context.Context, r lease.Record, funding []byte) (sign.Key, error) {
	f, err := escrow.UnmarshalFunding(funding)
	if err != nil {
		return sign.Key{}, &stream.Malformed{Reason: err.Error()}
	}
	net, err := x.cfg.Network.Get(ctx)
	if err != nil {
		return sign.Key{}, stream.Refuse(stream.CodeBusy, "the network's account on the chain has not been seen yet")
	}
	err = escrow.CheckWindows(net.Account.Params)
	if err == nil {
		_, err = claims.New(net, *r.Core, r.Keys, f, x.cfg.When, x.cfg.Params)
	}
	if err != nil {
		return sign.Key{}, stream.Refuse(string(market.ReasonUnfunded),
			"nothing could be claimed for the lease: "+err.Error())
	}
	return net.EscrowOf(*r.Core, f), nil
}

// atRisk is the least time of work without a seen escrow: one takes seconds to be confirmed.
const atRisk = 5 * time.Second

// Activation returns the event of a promise. The leaf must be seen by the activate-before slot, and if work begins at
// once before it has run for longer than the first voucher covers.
func (x *Escrowed) Activation(s *billing.Meter, funding []byte, now market.Slot) lease.Event {
	by := s.Record().Core.ActivateBefore + market.Slot(x.cfg.Genesis.IntervalSlots)
	if x.early(s.Record().Buyer, s.Record().Lease) {
		start := s.Start()
		g := x.cfg.Genesis
		by = min(by, start+market.Slot(max(g.IntervalSlots, g.SlotsIn(atRisk))))
	}
	return lease.FundingPromised{Lease: s.Record().Lease, Escrow: s.Record().Escrow, Funding: funding, By: max(by, now)}
}

// early reports whether work under a lease of the buyer begins before its escrow was seen. Keys are free: no buyer that
// has not paid here gets that, and all together only so often.
func (x *Escrowed) early(buyer sign.Key, l market.LeaseID) bool {
	now := time.Now()
	return !x.cfg.WaitFunded && x.Credit.Trusted(buyer, now) && x.starts.Take(l, now)
}

// distrust records a buyer that did not fund its promise, and the earnings that can never be claimed.
func (x *Escrowed) distrust(c market.LeaseCore, lost market.Amount) {
	buyer, id := c.Buyer, c.ID()
	x.cfg.Reputation.Failed(c, lost)
	if err := x.Credit.Broke(context.Background(), buyer); err != nil {
		x.cfg.Log.Error("cannot journal a buyer that did not fund its lease",
			"buyer", buyer, "lease", id, "err", err)
	}
}

// May refuses work while the lease's escrow was not seen, unless the lease began early. It waits a moment for the
// escrow.
func (x *Escrowed) May(ctx context.Context, r lease.Record) error {
	if r.FundBy == 0 || x.starts.Has(r.Lease) {
		return nil
	}
	s := x.cfg.Meters.Find(r.Lease)
	if s != nil {
		select {
		case <-s.Funding():
		case <-time.After(fundingWait):
		case <-ctx.Done():
		}
		if r, ok := x.record(s); ok && r.FundBy == 0 {
			return nil
		}
	}
	return stream.Refuse(stream.CodeBusy, "the lease's escrow is not on chain yet; try again")
}

// Opened keeps the claims of a lease, and polls for its leaf until it exists or the book ends the lease.
func (x *Escrowed) Opened(ctx context.Context, s *billing.Meter) {
	r, ok := x.record(s)
	if !ok || r.Escrow.IsZero() {
		return
	}
	x.claim(ctx, r)
	if r.FundBy > 0 {
		x.cfg.Meters.Go(func() { x.watch(ctx, s) })
	}
}

// claim keeps the claims of a lease, once.
func (x *Escrowed) claim(ctx context.Context, r lease.Record) {
	net, f, err := x.funding(ctx, r)
	var m claims.Claims
	if err == nil {
		m, err = claims.New(net, *r.Core, r.Keys, f, x.cfg.When, x.cfg.Params)
	}
	if err != nil {
		x.cfg.Log.Error("a lease's money cannot be claimed", "lease", r.Lease, "err", err)
		return
	}
	x.claims.Add(r.Lease.String(), m)
}

// Earned passes the best voucher of a lease to its claims.
func (x *Escrowed) Earned(s *billing.Meter) {
	v, owed, last := s.Best()
	now := billing.Claimed{Voucher: v, All: last, For: s.Signed()}
	if v == nil || s.Claimed() == now {
		return
	}
	name := s.Record().Lease.String()
	err := x.claims.Post(name, escrow.VoucherKept{Voucher: *v, Earned: now.For})
	if last {
		err = errors.Join(err, x.claims.Post(name, escrow.LeaseOver{Owed: owed}))
	}
	if err != nil {
		return // it will be repeated
	}
	s.SetClaimed(now)
}

// Notify logs the results of claims.
func (x owner) Notify(name string, e escrow.Effect) {
	log := x.cfg.Log.With("lease", name)
	money := x.cfg.Genesis.FormatAmount
	switch e := e.(type) {
	case escrow.Paid:
		log.Info("a claim is paid", "in all", money(e.Cumulative))
	case escrow.Settled:
		log.Info("a lease is claimed", "amount", money(e.Paid))
		if m, _, err := x.claims.Get(name); err == nil && e.Paid > 0 {
			if err := x.paid(m.Lease()); err != nil {
				log.Error("cannot journal a buyer that paid", "err", err)
			}
		}
	case escrow.Lost:
		log.Warn("a lease's money is lost", "paid", money(e.Paid), "owed", money(e.Owed), "reason", e.Reason)
		if m, _, err := x.claims.Get(name); err == nil && e.Unfunded && e.Owed > 0 {
			x.distrust(m.Lease(), e.Owed-min(e.Owed, e.Paid))
		}
		x.unfunded(e.Lease, "funds of the lease are lost: "+e.Reason)
	case escrow.Waiting:
		log.Debug("a claim waits", "reason", e.Reason, "until", e.Until)
	}
}

// paid records the payers of a lease: its buyer, and the peer that commands it.
func (x *Escrowed) paid(c market.LeaseCore) error {
	peers := []sign.Key{c.Buyer}
	if r, ok := x.cfg.Ledger.Book().Lease(c.ID()); ok && r.Peer() != c.Buyer {
		peers = append(peers, r.Peer())
	}
	return x.Credit.Paid(context.Background(), peers...)
}

// Landed implements settle.Observer.
func (x owner) Landed(name string, l settle.Landed) {
	x.cfg.Log.Debug("a transaction is on chain", "lease", name, "tx", l.Tx, "calls", l.Calls)
}

// Accounts sums up the claims that are kept, also those of leases that the book has forgotten.
func (x *Escrowed) Accounts() map[market.LeaseID]settle.Account {
	out := map[market.LeaseID]settle.Account{}
	for _, name := range x.claims.Names() {
		m, _, err := x.claims.Get(name)
		if err != nil {
			continue
		}
		a := settle.AccountOf(m)
		a.Lease = m.Lease()
		out[a.Lease.ID()] = a
	}
	return out
}

// Backing returns the security behind an order, or refuses the order.
func (x *Escrowed) Backing(
	ctx context.Context, o market.Order, standing admit.Standing, from netip.Prefix,
) (*lease.Backing, error) {
	return x.Credit.Backing(ctx, o, standing, from)
}

// Recent returns the security behind an order of a buyer that paid here, as it was a moment ago, or nil.
func (x *Escrowed) Recent(o market.Order) *lease.Backing { return x.Credit.Recent(o) }
