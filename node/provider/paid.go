package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/p2p/stream"
)

// payments is how the provider comes to its money.
type payments interface {
	// promised reads the buyer's data about a lease's funding, and names the escrow; zero where there is none. Its
	// refusals are for the buyer.
	promised(ctx context.Context, r lease.Record, funding []byte) (sign.Key, error)
	// activation is the book's event for a lease with a first voucher checked in slot now.
	activation(s *sale, funding []byte, now market.Slot) lease.Event
	// may returns nil when work may begin under an active lease, and else a refusal. It waits a moment for the lease's
	// funds.
	may(ctx context.Context, r lease.Record) error
	// opened is called when the loop of a lease begins, also after a restart. Its goroutines end with ctx.
	opened(ctx context.Context, s *sale)
	// earned is called for a lease that may have a new best voucher, or that is settled.
	earned(s *sale)
	// run does the work beside the leases until ctx ends.
	run(ctx context.Context)
	// accounts are the known accounts of the leases.
	accounts() map[market.LeaseID]settle.Account
}

// Accounts are the accounts of leases that are paid from escrows, also of those that ended long ago.
func (p *Provider) Accounts() map[market.LeaseID]settle.Account { return p.pay.accounts() }

// free is paid nothing: on a free network nothing costs anything.
type free struct{}

func (free) promised(_ context.Context, _ lease.Record, funding []byte) (sign.Key, error) {
	if len(funding) > 0 {
		return sign.Key{}, stream.Refuse(string(market.ReasonUnfunded), "this network is free, it has no escrows")
	}
	return sign.Key{}, nil
}

func (free) activation(s *sale, _ []byte, now market.Slot) lease.Event {
	return lease.FundingSeen{Lease: s.rec.Lease, Landed: now}
}

func (free) may(context.Context, lease.Record) error     { return nil }
func (free) opened(context.Context, *sale)               {}
func (free) earned(*sale)                                {}
func (free) run(context.Context)                         {}
func (free) accounts() map[market.LeaseID]settle.Account { return nil }

// Escrows is the configuration of a provider that is paid from escrows.
type Escrows struct {
	Chain   settle.Chain
	Network *settle.Network
	Params  escrow.Params
	Fees    chain.Fees // limits of the chain's priority fees
	When    escrow.When
	// WaitFunded has work begin only when its escrow was seen on chain. Otherwise it begins at once, with the first voucher's amount at
	// risk, for buyers that paid this provider before and never left a lease unfunded, of maxStarts such leases an hour.
	WaitFunded bool
}

const (
	// maxStarts is the number of leases in startsOver whose work begins before their escrow was seen. Keys are free, so the
	// bound is for all buyers together.
	maxStarts  = 16
	startsOver = time.Hour
	// fundingFirst is the pause after the first look for an escrow that is not on chain yet. Pauses double up to fundingLook.
	fundingFirst = 50 * time.Millisecond
	fundingLook  = 500 * time.Millisecond
	// fundingWait bounds the time in which the start of a program waits for its lease's escrow, before it is refused and
	// asked for again.
	fundingWait = 2 * time.Second
)

// claimsTable has an escrow.Claims by lease id.
var claimsTable = settle.Define("claims")

// escrowed claims the vouchers' amounts from the buyers' escrows.
type escrowed struct {
	Escrows
	p      *Provider
	claims *settle.Keeper[escrow.Claims]
	broken *remembered
	payers *remembered
	starts *rates.Credit[market.LeaseID] // leases whose work began before their escrow was seen
	lapses *lapses
	purses *purses
}

func newEscrowed(ctx context.Context, p *Provider, e Escrows) (*escrowed, error) {
	x := &escrowed{Escrows: e, p: p, purses: newPurses(e.Chain), starts: rates.NewCredit[market.LeaseID](maxStarts, startsOver)}
	var err error
	if x.lapses, err = loadLapses(ctx, p.cfg.Store, time.Now()); err != nil {
		return nil, err
	}
	if x.broken, err = loadRemembered(ctx, p.cfg.Store, kindBroken, time.Now()); err != nil {
		return nil, err
	}
	if x.payers, err = loadRemembered(ctx, p.cfg.Store, kindPayer, time.Now()); err != nil {
		return nil, err
	}
	x.claims, err = settle.NewKeeper(ctx, settle.KeeperConfig[escrow.Claims]{
		Table: claimsTable, Program: p.cfg.Genesis.Program,
		Over:     escrow.Claims.Done,
		Observer: settle.Observer{Looked: x.looked, Landed: x.landed}, Ledger: e.Chain, Store: p.cfg.Store, Notify: x.told, Log: p.cfg.Log,
		Restore: func(ctx context.Context, state []byte) (escrow.Claims, error) {
			net, err := e.Network.Get(ctx)
			if err != nil {
				return escrow.Claims{}, err
			}
			return escrow.RestoreClaims(state, net, e.When, e.Params)
		},
	})
	return x, err
}

// looked ends a lease when its buyer takes back its money: earnings after the network's response slots are not paid.
func (x *escrowed) looked(name string, v escrow.View) {
	if m, _, err := x.claims.Get(name); err == nil && m.Retired(v) {
		x.unfunded(m.Lease().ID(), "its buyer takes back the money for it")
	}
}

// unfunded ends a lease that runs and has no money any more.
func (x *escrowed) unfunded(id market.LeaseID, reason string) {
	x.p.mu.Lock()
	r, ok := x.p.book.Lease(id)
	x.p.mu.Unlock()
	if !ok || r.State != lease.Active {
		return
	}
	if _, err := x.p.step(context.Background(), lease.FundingWrong{Lease: id, Reason: reason}); err != nil {
		x.p.cfg.Log.Error("a lease without money does not end yet", "lease", id, "err", err)
	}
}

func (x *escrowed) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.purses.run(ctx) })
	x.claims.Run(ctx)
	wg.Wait()
}

func (x *escrowed) promised(ctx context.Context, r lease.Record, funding []byte) (sign.Key, error) {
	f, err := escrow.UnmarshalFunding(funding)
	if err != nil {
		return sign.Key{}, &stream.Malformed{Reason: err.Error()}
	}
	net, err := x.Network.Get(ctx)
	if err != nil {
		return sign.Key{}, stream.Refuse(stream.CodeBusy, "the network's account on the chain has not been seen yet")
	}
	err = escrow.CheckWindows(net.Account.Params)
	if err == nil {
		_, err = escrow.NewClaims(net, *r.Core, r.Keys, f, x.When, x.Params)
	}
	if err != nil {
		return sign.Key{}, stream.Refuse(string(market.ReasonUnfunded), "nothing could be claimed for the lease: "+err.Error())
	}
	return net.EscrowOf(*r.Core, f), nil
}

// atRisk is the least time of work without a seen escrow: one takes seconds to be confirmed.
const atRisk = 5 * time.Second

// activation: by its activate-before slot the leaf must be seen, and where work begins at once before it has run for longer than the
// first voucher covers.
func (x *escrowed) activation(s *sale, funding []byte, now market.Slot) lease.Event {
	by := s.rec.Core.ActivateBefore + market.Slot(x.p.cfg.Genesis.IntervalSlots)
	if x.early(s.rec.Buyer, s.rec.Lease) {
		s.mu.Lock()
		start := s.seller.Start()
		s.mu.Unlock()
		g := s.p.cfg.Genesis
		by = min(by, start+market.Slot(max(g.IntervalSlots, g.SlotsIn(atRisk))))
	}
	return lease.FundingPromised{Lease: s.rec.Lease, Escrow: s.rec.Escrow, Funding: funding, By: max(by, now)}
}

// early reports whether work under a lease of the buyer begins before its escrow was seen. Keys are free: no buyer that
// has not paid here gets that, and all together only so often.
func (x *escrowed) early(buyer sign.Key, l market.LeaseID) bool {
	now := time.Now()
	return !x.WaitFunded && x.payers.has(buyer, now) && !x.broken.has(buyer, now) && x.starts.Take(l, now)
}

// distrust records a buyer that did not fund its promise, and the earnings that can never be claimed.
func (x *escrowed) distrust(c market.LeaseCore, lost market.Amount) {
	buyer, id := c.Buyer, c.ID()
	x.p.cfg.Reputation.Failed(c, lost)
	if err := x.broken.add(context.Background(), buyer, time.Now()); err != nil {
		x.p.cfg.Log.Error("a buyer that did not fund its lease is not remembered over a restart", "buyer", buyer, "lease", id, "err", err)
	}
}

func (x *escrowed) may(ctx context.Context, r lease.Record) error {
	if r.FundBy == 0 || x.starts.Has(r.Lease) {
		return nil
	}
	x.p.mu.Lock()
	s := x.p.sales[r.Lease]
	x.p.mu.Unlock()
	if s != nil {
		select {
		case <-s.funding:
		case <-time.After(fundingWait):
		case <-ctx.Done():
		}
		if r, ok := x.record(s); ok && r.FundBy == 0 {
			return nil
		}
	}
	return stream.Refuse(stream.CodeBusy, "the lease's escrow is not on chain yet; ask again")
}

// opened keeps the claims of a lease, and looks for its leaf until that is there or the book ends the lease.
func (x *escrowed) opened(ctx context.Context, s *sale) {
	r, ok := x.record(s)
	if !ok || r.Escrow.IsZero() {
		return
	}
	x.claim(ctx, r)
	if r.FundBy > 0 {
		x.p.wg.Go(func() { x.watch(ctx, s) })
	}
}

// promised is the amount of a lease's best voucher.
func (s *sale) promised() market.Amount {
	if v, _, _ := s.best(); v != nil {
		return v.Cumulative
	}
	return 0
}

// claim keeps the claims of a lease, once.
func (x *escrowed) claim(ctx context.Context, r lease.Record) {
	net, f, err := x.funding(ctx, r)
	var m escrow.Claims
	if err == nil {
		m, err = escrow.NewClaims(net, *r.Core, r.Keys, f, x.When, x.Params)
	}
	if err != nil {
		x.p.cfg.Log.Error("a lease's money cannot be claimed", "lease", r.Lease, "err", err)
		return
	}
	x.claims.Add(r.Lease.String(), m)
}

func (x *escrowed) earned(s *sale) {
	v, owed, last := s.best()
	s.mu.Lock()
	signed := s.seller.Last().Cumulative
	known := s.claimed == v && s.claimedAll == last && s.claimedFor == signed
	s.mu.Unlock()
	if known || v == nil {
		return
	}
	name := s.rec.Lease.String()
	err := x.claims.Post(name, escrow.VoucherKept{Voucher: *v, Earned: signed})
	if last {
		err = errors.Join(err, x.claims.Post(name, escrow.LeaseOver{Owed: owed}))
	}
	if err != nil {
		return // it will be repeated
	}
	s.mu.Lock()
	s.claimed, s.claimedAll, s.claimedFor = v, last, signed
	s.mu.Unlock()
}

// told logs the results of claims.
func (x *escrowed) told(name string, e escrow.Effect) {
	log := x.p.cfg.Log.With("lease", name)
	money := x.p.cfg.Genesis.FormatAmount
	switch e := e.(type) {
	case escrow.Paid:
		log.Info("a claim is paid", "in all", money(e.Cumulative))
	case escrow.Settled:
		log.Info("a lease is claimed", "amount", money(e.Paid))
		if m, _, err := x.claims.Get(name); err == nil && e.Paid > 0 {
			if err := x.paid(m.Lease()); err != nil {
				log.Error("a buyer that paid is not remembered over a restart", "err", err)
			}
		}
	case escrow.Lost:
		log.Warn("a lease's money is lost", "paid", money(e.Paid), "owed", money(e.Owed), "reason", e.Reason)
		if m, _, err := x.claims.Get(name); err == nil && e.Unfunded && e.Owed > 0 {
			x.distrust(m.Lease(), e.Owed-min(e.Owed, e.Paid))
		}
		x.unfunded(e.Lease, "its money is lost: "+e.Reason)
	case escrow.Waiting:
		log.Debug("a claim waits", "reason", e.Reason, "until", e.Until)
	}
}

// paid records the payers of a lease: its buyer, and the peer that commands it.
func (x *escrowed) paid(c market.LeaseCore) error {
	peers := []sign.Key{c.Buyer}
	x.p.mu.Lock()
	if r, ok := x.p.book.Lease(c.ID()); ok && r.Peer() != c.Buyer {
		peers = append(peers, r.Peer())
	}
	x.p.mu.Unlock()
	var errs []error
	for _, k := range peers {
		errs = append(errs, x.payers.add(context.Background(), k, time.Now()), x.lapses.paid(context.Background(), k))
	}
	return errors.Join(errs...)
}

func (x *escrowed) landed(name string, l settle.Landed) {
	x.p.cfg.Log.Debug("a transaction is on chain", "lease", name, "tx", l.Tx, "calls", l.Calls)
}

// accounts sums up the claims that are kept, also those of leases that the book has forgotten.
func (x *escrowed) accounts() map[market.LeaseID]settle.Account {
	out := map[market.LeaseID]settle.Account{}
	for _, name := range x.claims.Names() {
		m, _, err := x.claims.Get(name)
		if err != nil {
			continue
		}
		out[m.Lease().ID()] = settle.AccountOf(m)
	}
	return out
}
