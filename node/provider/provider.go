// Package provider is the selling loop of a peer: it publishes an offer of the
// units that are free, answers orders with quotes, holds and leases units, runs
// what buyers bring under a lease, and meters it.
//
// What is promised is decided by market/lease's Book and what is paid by
// verify/meter's Seller; this package carries out their effects, in their order,
// each journalled before anything that depends on it leaves the peer.
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
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// Kinds of the provider's journal records.
const (
	kindHold    = "hold"    // lease.Record by hold id
	kindSeller  = "seller"  // meter.Seller by lease id
	kindSold    = "sold"    // a co-signed receipt by lease id and number
	kindOffer   = "offer"   // the last sequence number, under the class
	kindMetered = "metered" // the highest slot in which anything was metered
)

// Config is what a Provider needs. All of it is required but Offered and Funds.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Owner   sign.Key // is paid

	Units    []market.Unit // of one class
	PerUnit  market.Resources
	Price    market.Price
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

	// Offered publishes a new offer, signed; it is called from one goroutine.
	Offered func(ctx context.Context, o market.Offer, envelope []byte) error
	// Orders gives the next order heard over gossip.
	Orders func(ctx context.Context) (market.Order, error)
	// Funds tells what a wallet holds; nil means that orders' proofs of funds are not looked up.
	Funds func(ctx context.Context, wallet sign.Key) (market.Amount, error)

	// HoldTTL is how long units are set aside for a buyer that does not come back.
	HoldTTL time.Duration
	// Retain is how long the outputs and logs of an ended lease are kept.
	Retain time.Duration
}

// Provider sells the units of one peer. New starts nothing; Run does.
type Provider struct {
	cfg    Config
	domain sign.Domain
	tag    string
	self   sign.Key
	exec   *executor
	funds  *fundsCache
	rates  *rateLimiter

	mu      sync.Mutex
	book    lease.Book
	sales   map[market.LeaseID]*sale
	changed chan struct{} // holds one token when the free units changed
	ctx     context.Context
	wg      sync.WaitGroup // of sales

	floorMu sync.Mutex
	floor   market.Slot // nothing new is billed from an earlier slot

	offerMu   sync.Mutex
	lastOffer market.Offer
	offered   []byte // its envelope
}

// Timing of leases, in slots and as multiples of the metering interval.
const (
	startWithinIntervals = 10 // a lease's start may differ from our slot by so much
	activateIntervals    = 10 // and must be paid for within so much
	minActivateSlots     = 100
)

// New checks the configuration and reads what an earlier process left.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	p := &Provider{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(),
		sales: map[market.LeaseID]*sale{}, changed: make(chan struct{}, 1),
		funds: newFundsCache(cfg.Funds), rates: newRateLimiter(),
	}
	if len(cfg.Units) == 0 {
		return nil, errors.New("a provider needs at least one unit")
	}
	class := cfg.Units[0].Class
	names := slices.Sorted(maps.Keys(cfg.Runtimes))
	interval := cfg.Genesis.IntervalSlots
	limits := lease.Limits{
		Provider: p.self, Payout: cfg.Owner, Domain: p.domain, SlotMillis: cfg.Genesis.SlotMillis, Decimals: cfg.Genesis.Decimals,
		Asks: map[market.Class]market.Price{class: cfg.Price}, Region: cfg.Region, Runtimes: names,
		MinSlots: cfg.MinSlots, MaxSlots: cfg.MaxSlots,
		HoldTTL: cfg.HoldTTL, MaxHolds: 4 * len(cfg.Units), MaxHoldsPerBuyer: 2 * len(cfg.Units),
		StartWithin: startWithinIntervals*interval + minActivateSlots, ActivateWithin: activateIntervals*interval + minActivateSlots, MarginSlots: interval,
	}
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	book := lease.NewBook(cfg.Units, limits)
	var recs []lease.Record
	err := cfg.Store.List(ctx, kindHold, "", func(key string, value []byte) error {
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
	p.exec = &executor{
		dir: filepath.Join(cfg.Dir, "exec"), store: cfg.Store, blobs: cfg.Blobs, fetch: cfg.Fetch, grant: cfg.Grant,
		runtimes: cfg.Runtimes, log: cfg.Log, exec: map[string]*execution{}, over: map[market.LeaseID]time.Time{}, closed: map[market.LeaseID]bool{},
	}
	return p, nil
}

// Class is the class of the units sold.
func (p *Provider) Class() market.Class { return p.cfg.Units[0].Class }

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
	if err := p.resumeSales(ctx); err != nil {
		return fmt.Errorf("resuming leases: %w", err)
	}
	servers := []*stream.Server{
		protocol.Ask.Handle(p.cfg.Host, p.tag, p.handleAsk, stream.Limits{Logger: p.cfg.Log}),
		protocol.Lease.Handle(p.cfg.Host, p.tag, p.handleLease, stream.Limits{PerPeer: 64, Logger: p.cfg.Log}),
		protocol.Exec.Handle(p.cfg.Host, p.tag, p.handleExec, stream.Limits{PerPeer: 64, Logger: p.cfg.Log}),
		protocol.Watch.Serve(p.cfg.Host, p.tag, p.handleWatch, stream.Limits{PerPeer: 64, Logger: p.cfg.Log}),
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.advertise(gctx) })
	g.Go(func() error { return p.listen(gctx) })
	g.Go(func() error { return p.tick(gctx) })
	err := g.Wait()
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
		p.sweep(ctx)
	}
}

// step takes the book one event further and carries out what follows, in order.
// The answer for the caller is returned.
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
	p.book = next
	return p.carryOutLocked(effects), nil
}

// journal writes all records of a step at once, before any of its answers.
func (p *Provider) journal(ctx context.Context, effects []lease.Effect) error {
	var puts []store.Put
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
		}
	}
	if len(puts) == 0 {
		return nil
	}
	if err := p.cfg.Store.Write(ctx, puts...); err != nil {
		return fmt.Errorf("journalling a hold: %w", err)
	}
	return nil
}

func (p *Provider) carryOut(effects []lease.Effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carryOutLocked(effects)
}

// carryOutLocked does what the book wants, in order, and returns its answer to
// the caller. p.mu is held.
func (p *Provider) carryOutLocked(effects []lease.Effect) (answer lease.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist, lease.Forget: // journalled
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
}

// Sold lists the holds and leases, live ones and those that ended recently.
func (p *Provider) Sold() []Sold {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Sold
	for r := range p.book.Records() {
		s := Sold{Record: r}
		if sale := p.sales[r.Lease]; sale != nil {
			s.Receipts, s.Earned = sale.account()
		}
		out = append(out, s)
	}
	return out
}

// Units says how many units there are and how many are free.
func (p *Provider) Units() (total, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.book.Total(p.Class()), p.book.Free(p.Class())
}
