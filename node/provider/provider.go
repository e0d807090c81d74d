// Package provider is the selling loop of a peer: it publishes an offer of the units that are free, answers orders with
// quotes, holds and leases units, runs buyers' programs under a lease, and meters it.
//
// market/lease's Book decides about promises and verify/meter's Seller about payments; this package carries out their
// effects, in their order, each journalled before anything that depends on it leaves the peer.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// Kinds of the provider's journal records.
const (
	kindHold     = "hold"     // lease.Record by hold id
	kindSeller   = "seller"   // meter.Seller by lease id
	kindSold     = "sold"     // a co-signed receipt by lease id and number
	kindOffer    = "offer"    // the last sequence number, under the class
	kindOperator = "operator" // the operator's settings at run time: operatorState
	kindMetered  = "metered"  // the highest slot in which anything was metered
	kindClaims   = "claims"   // escrow.Claims by lease id
)

// Config is the configuration of a Provider. All of it is required, except fields with a stated meaning of nil.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Owner   sign.Key // is paid

	Lots     []Lot // one for each class that is sold
	Policy   Policy
	Region   market.Region
	MinSlots uint64
	MaxSlots uint64

	Store    store.Store
	Blobs    workload.Blobs
	Fetch    workload.Fetcher
	Grant    func(to peer.ID, c cid.Cid) // lets a peer read a blob of ours
	Runtimes map[string]runtime.Runtime
	Slots    *slots.Clock
	Dir      string // for executions
	Version  string
	Log      *slog.Logger

	// Offered publishes the offers, one for each class that is for sale, signed; without any it withdraws the published
	// ones. It is called from one goroutine.
	Offered func(ctx context.Context, offers []market.Offer, envelopes [][]byte) error
	// Filed is called with each receipt that both have signed, under its lease; calls may repeat. It must not wait.
	Filed func(l market.Lease, units []market.UnitID, r verify.Receipt)
	// Orders gives the next order heard over gossip. Several goroutines call it.
	Orders func(ctx context.Context) (market.Order, error)
	// Reply sends a quote for one of them, with the offer behind it, back over the connections by which the order came. It waits for
	// nobody.
	Reply func(o market.Order, quote, offer []byte) error
	// Reputation is this peer's knowledge of others.
	Reputation Reputation

	// Escrows is how the provider comes to its money; nil on a free network.
	Escrows *Escrows

	// HoldTTL is how long units are set aside for a buyer that does not come back.
	HoldTTL time.Duration
	// Retain is how long the outputs and logs of an ended execution are kept for its buyer, RetainBytes how much they may
	// take together: the oldest go first.
	Retain      time.Duration
	RetainBytes int64
	// Drop is called when a file kept for a lease is no longer needed for it; nil keeps it.
	Drop func(c cid.Cid)

	// Coordinate is where this peer is in the network, zero while it does not know; nil: offers do not say.
	Coordinate func() market.Coordinate
	// Networks joins executions to the overlays of their clusters; nil: this provider joins no clusters.
	Networks Networks
	// Overlay is the private key of a hold in its cluster's overlay; nil: this provider joins no clusters.
	Overlay func(market.HoldID) cluster.PrivateKey
	// Unseal opens a box sealed to this peer for a lease; nil refuses work with secrets.
	Unseal func(box []byte, l market.LeaseID) ([]byte, error)
	// Devices names the devices of units, for the container engine and for people; nil gives containers none.
	Devices func(units []market.UnitID) (ids, names []string, err error)
	// Vacate has the memory of units given back, before a program starts on them; nil: nobody else has any.
	Vacate func(units []market.UnitID)
	// Health says how the hardware of units does, for the snapshots at both ends of an execution; nil takes none.
	Health Health
	// AllowImage refuses an image with a reason for its buyer; nil allows every one.
	AllowImage func(image string) error
	// Network is how far containers reach outside that ask for it; empty: nowhere.
	Network egress.Mode
}

// Reputation is a peer's knowledge of others; node/reputation implements it.
type Reputation interface {
	// Scores are those of peers in a role, in their order.
	Scores(role reputation.Role, peers ...sign.Key) []reputation.Score
	// Failed records that the buyer of a lease broke it, once or more often.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Provider sells the units of one peer. New starts nothing; Run does.
type Provider struct {
	cfg    Config
	domain sign.Domain
	tag    string
	self   sign.Key
	exec   *executor
	pay    payments
	fees   fees
	rates  *rates.Limiter[sign.Key] // orders by buyer
	probes probes
	counts *counts

	mu      sync.Mutex
	book    lease.Book
	op      operatorState
	bad     map[market.UnitID]string // units withdrawn, and why
	proofs  proofs
	sales   map[market.LeaseID]*sale
	stuck   map[market.LeaseID]time.Time // leases that cannot be removed, and when that is tried again; of sweep
	changed chan struct{}                // holds one token when the free units changed
	ctx     context.Context
	wg      sync.WaitGroup // of sales

	floorMu sync.Mutex
	floor   market.Slot                   // nothing new is billed from an earlier slot
	ends    market.Slot                   // end of the paid time of its units
	until   map[market.UnitID]market.Slot // and each unit until then: a lease pays for the whole slot in which its work ends

	offerMu sync.Mutex
	apart   atomic.Bool // nothing that runs here can be given a network, and so be a member of a cluster
	offers  map[market.Class]published
}

// Timing of leases, in slots and as multiples of the metering interval.
const (
	startWithinIntervals = 10 // a lease's start may differ from our slot by so much
	minStartSlots        = 100
	activateIntervals    = 6 // and it must be paid for within so much: buyers take 5 intervals and 50 slots
	minActivateSlots     = 75

	// signTTL, and signSlots, is how much longer than its hold a signed lease may wait to be activated: its buyer signs with all other
	// providers of the order, and sets their money aside.
	signTTL   = 20 * time.Second
	signSlots = 50
)

// leaseRates bound the steps of leases, each of which may cost a write to the journal. A buyer of hundreds of units takes three for each.
func leaseRates() *admit.Rates {
	return admit.NewRates(admit.Rate{PerSecond: 50, Burst: 800}, admit.Rate{PerSecond: 100, Burst: 1600}, admit.Rate{PerSecond: 200, Burst: 3200})
}

// New checks the configuration and reads the journal of an earlier process.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	p := &Provider{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(),
		sales: map[market.LeaseID]*sale{}, stuck: map[market.LeaseID]time.Time{}, until: map[market.UnitID]market.Slot{}, changed: make(chan struct{}, 1), offers: map[market.Class]published{}, bad: map[market.UnitID]string{},
		proofs: proofs{lists: map[sign.Hash][]market.Shown{}}, counts: &counts{},
		rates: rates.New[sign.Key](ordersPerSecond, orderBurst, maxBuyers),
	}
	units, err := checkLots(cfg.Lots, cfg.Genesis)
	if err != nil {
		return nil, err
	}
	if err := p.loadOperator(ctx); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(cfg.Runtimes))
	interval := cfg.Genesis.IntervalSlots
	limits := lease.Limits{
		Provider: p.self, Payout: cfg.Owner, Domain: p.domain, SlotMillis: cfg.Genesis.SlotMillis, Decimals: cfg.Genesis.Decimals,
		Asks: p.asks(), Region: cfg.Region, Runtimes: names,
		MinSlots: cfg.MinSlots, MaxSlots: cfg.MaxSlots,
		HoldTTL: cfg.HoldTTL, SignTTL: max(signTTL, time.Duration(signSlots*cfg.Genesis.SlotMillis)*time.Millisecond), MaxHolds: 4 * len(units), MaxHoldsPerBuyer: 2 * len(units), MaxLeasesPerBuyer: cfg.Policy.MaxLeasesPerBuyer, MaxMembers: cfg.Policy.Clusters.MaxMembers,
		StartWithin: startWithinIntervals*interval + minStartSlots, ActivateWithin: activateIntervals*interval + minActivateSlots, MarginSlots: interval,
	}
	if cfg.Overlay != nil {
		limits.OverlayKey = func(h market.HoldID) market.OverlayKey { return cfg.Overlay(h).Public() }
	}
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	book := lease.NewBook(units, limits)
	if cfg.Genesis.AuditSlots > 0 {
		book = book.WithShown(nil) // until Show sets their proofs
	}
	var recs []lease.Record
	err = cfg.Store.List(ctx, kindHold, "", func(key string, value []byte) error {
		r, err := lease.UnmarshalRecord(value)
		if err != nil {
			return fmt.Errorf("reading hold %s: %w", key, err)
		}
		recs = append(recs, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the holds: %w", err)
	}
	if p.book, err = book.Restore(recs); err != nil {
		return nil, fmt.Errorf("restoring the holds: %w", err)
	}
	if err := p.loadMetered(ctx); err != nil {
		return nil, err
	}
	if p.pay = (free{}); cfg.Escrows != nil {
		p.fees.funds, p.fees.bids, p.fees.units = cfg.Escrows.Chain.Funds, cfg.Escrows.Fees, cfg.Genesis.Decimals
		if p.pay, err = newEscrowed(ctx, p, *cfg.Escrows); err != nil {
			return nil, err
		}
	}
	p.exec = &executor{
		counts: p.counts,
		dir:    filepath.Join(cfg.Dir, "exec"), store: cfg.Store, blobs: cfg.Blobs, fetch: cfg.Fetch, grant: cfg.Grant,
		runtimes: cfg.Runtimes, log: cfg.Log, health: cfg.Health, domain: p.domain, key: cfg.Key, networks: cfg.Networks, member: cfg.Overlay, exec: map[string]*execution{}, over: map[market.LeaseID]time.Time{}, closed: map[market.LeaseID]bool{},
		launching: launching{
			unseal: cfg.Unseal, devices: cfg.Devices, vacate: cfg.Vacate, allowImage: cfg.AllowImage, outside: cfg.Network,
			retain: cfg.Retain, drop: cfg.Drop,
		},
	}
	p.exec.fellow = p.openFellow
	return p, nil
}

// Run sells until ctx ends. Programs that run then go on for the next process.
func (p *Provider) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.exec.ctx = ctx
	resume := p.book.Resume()
	p.mu.Unlock()
	if err := p.exec.restore(ctx); err != nil {
		return fmt.Errorf("restoring executions: %w", err)
	}
	p.carryOut(resume)
	if p.paused() {
		p.cfg.Log.Warn("nothing new is sold: the offers are paused or drained", "advice", "`starling provider resume` sells again")
	}
	if err := p.resumeSales(ctx); err != nil {
		return fmt.Errorf("resuming leases: %w", err)
	}
	if p.fees.funds != nil {
		p.fees.look(ctx) // before anything is sold
	}
	servers := []*stream.Server{
		protocol.Ask.Handle(p.cfg.Host, p.tag, p.handleAsk, stream.Limits{Logger: p.cfg.Log}),
		protocol.Lease.Handle(p.cfg.Host, p.tag, p.handleLease, stream.Limits{PerPeer: 64, Rates: leaseRates(), Logger: p.cfg.Log}),
		protocol.Exec.Handle(p.cfg.Host, p.tag, p.handleExec, stream.Limits{PerPeer: 64, Logger: p.cfg.Log}),
		protocol.Watch.Serve(p.cfg.Host, p.tag, p.handleWatch, stream.Limits{PerPeer: 64, Logger: p.cfg.Log}),
		protocol.Live.Serve(p.cfg.Host, p.tag, p.handleLive, stream.Limits{PerPeer: 2 * maxStreams, Concurrent: 8 * maxStreams, Logger: p.cfg.Log}),
		protocol.Rsh.Serve(p.cfg.Host, p.tag, p.handleRsh, stream.Limits{PerPeer: 2 * maxStreams, Concurrent: 8 * maxStreams, Logger: p.cfg.Log}),
	}
	paths := link.New(p.cfg.Host, p.tag, holds{p}, p.cfg.Log)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { p.pay.run(gctx); return nil })
	g.Go(func() error { p.watchFees(gctx); return nil })
	g.Go(func() error { p.tryOverlays(gctx); return nil })
	g.Go(func() error { return p.advertise(gctx) })
	g.Go(func() error { return p.listen(gctx) })
	g.Go(func() error { return p.tick(gctx) })
	g.Go(func() error { return p.sweepAll(gctx) })
	err := g.Wait()
	paths.Close()
	for _, s := range servers {
		s.Close()
	}
	p.exec.wg.Wait()
	p.wg.Wait()
	return err
}

// tick lets holds and leases expire.
func (p *Provider) tick(ctx context.Context) error {
	every := time.NewTicker(max(time.Duration(p.cfg.Genesis.SlotMillis*p.cfg.Genesis.IntervalSlots)*time.Millisecond/2, 100*time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if _, err := p.step(ctx, lease.Ticked{}); err != nil && ctx.Err() == nil && !errors.Is(err, slots.ErrUnknown) {
			p.cfg.Log.Error("holds could not be brought up to date", "err", err)
		}
	}
}

// sweepAll removes the files of ended leases, beside all other work: a folder with a million files takes its time.
func (p *Provider) sweepAll(ctx context.Context) error {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			p.sweep(ctx)
		}
	}
}

// step takes the book one event further and carries out its effects, in order. The answer for the caller is returned.
func (p *Provider) step(ctx context.Context, ev lease.Event) (lease.Effect, error) {
	slot, err := p.cfg.Slots.Now(time.Now())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next, effects, err := p.book.Step(lease.Now{Time: time.Now(), Slot: slot}, ev)
	if err != nil {
		return nil, err
	}
	if err := p.journal(ctx, effects); err != nil {
		return nil, err // the book stays as it was: nothing was promised
	}
	p.counts.stepped(p.book, ev, effects)
	p.book = next
	return p.carryOutLocked(effects), nil
}

// journal writes all records of a step at once, before any of its answers.
func (p *Provider) journal(ctx context.Context, effects []lease.Effect) error {
	var puts []store.Put
	var lapses []after
	x, paid := p.pay.(*escrowed)
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist:
			b, err := e.Record.Marshal()
			if err != nil {
				return err
			}
			puts = append(puts, store.Put{Kind: kindHold, Key: e.Record.ID.String(), Value: b})
		case lease.Forget:
			puts = append(puts, store.Put{Kind: kindHold, Key: e.Hold.String()})
		case lease.Unpaid:
			if paid {
				more, to := x.lapses.unpaid(e, time.Now())
				puts, lapses = append(puts, more...), append(lapses, to)
			}
		}
	}
	if len(puts) == 0 {
		return nil
	}
	if err := p.cfg.Store.Write(ctx, puts...); err != nil {
		return fmt.Errorf("journalling a hold: %w", err)
	}
	for _, to := range lapses {
		x.lapses.set(to)
	}
	return nil
}

func (p *Provider) carryOut(effects []lease.Effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carryOutLocked(effects)
}

// carryOutLocked carries out the book's effects, in order, and returns its answer to the caller. p.mu is held.
func (p *Provider) carryOutLocked(effects []lease.Effect) (answer lease.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist, lease.Forget, lease.Unpaid: // journalled
		case lease.Activate:
			p.openLocked(e.Record, "")
		case lease.EndLease:
			p.endLocked(e.Lease, e.Reason)
		case lease.UnitsFreed:
			p.offerChanged()
		case lease.AnswerHeld:
			p.offerChanged()
			answer = e
		default:
			answer = e
		}
	}
	return answer
}

func (p *Provider) offerChanged() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Sold is one lease or hold as this provider sees it.
type Sold struct {
	Record   lease.Record
	Receipts uint64
	Earned   market.Amount
	Lot      Lot // that its units are of; without units when its class is no longer sold
}

// Sold lists the holds and leases, live ones and those that ended recently.
func (p *Provider) Sold() []Sold {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Sold
	for r := range p.book.Records() {
		s := Sold{Record: r, Lot: p.lot(r.Class)}
		if sale := p.sales[r.Lease]; sale != nil {
			s.Receipts, s.Earned = sale.account()
		}
		out = append(out, s)
	}
	return out
}

// Inventory is the root over the ids of all units that are for sale, sold or not, as in a registration on chain. Zero:
// there are none.
func (p *Provider) Inventory() sign.Hash {
	p.mu.Lock()
	defer p.mu.Unlock()
	units := p.book.Units()
	if len(units) == 0 {
		return sign.Hash{}
	}
	ids := make([]market.UnitID, len(units))
	for i, u := range units {
		ids[i] = u.ID
	}
	return market.UnitsRoot(ids)
}

// Idle are the units for sale that nobody has.
func (p *Provider) Idle() []market.Unit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(p.book.Units(), func(u market.Unit) bool {
		_, held := p.book.Holder(u.ID)
		return held || p.book.Withdrawn(u.ID)
	})
}

// Units says how many units there are and how many are free.
func (p *Provider) Units() (total, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.cfg.Lots {
		total, free = total+p.book.Total(l.Class), free+p.book.Free(l.Class)
	}
	return total, free
}
