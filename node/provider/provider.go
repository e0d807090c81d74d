// Package provider is the selling side of a peer. It composes these rooms:
//
//	policy    the operator's rules: inventory, hours, buyers (pure)
//	ledger    the lease book and its journal
//	offers    publishes the offers of free units
//	billing   meters leases, and ends work that is not paid for
//	credit    the money of buyers: backing of orders, broken promises
//	fees      the fees of claims, which this peer pays
//	pay       claims payments from escrows
//	executor  executions of buyers' programs, in node/executor
//
// The provider itself answers orders with quotes and serves the steps of leases. market/lease's Book decides about
// promises and verify/meter's Seller about payments; every step is journalled before anything that depends on it leaves
// the peer.
package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor/service"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/provider/billing"
	"github.com/starling-network/starling/node/provider/fees"
	"github.com/starling-network/starling/node/provider/ledger"
	"github.com/starling-network/starling/node/provider/offers"
	"github.com/starling-network/starling/node/provider/pay"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// payments is how a provider is paid: pay.Escrowed, or pay.Free.
type payments interface {
	billing.Money
	credits
	// Promised reads the buyer's funding data of a lease and returns the escrow; zero if there is none. Its refusals
	// are for the buyer.
	Promised(ctx context.Context, r lease.Record, funding []byte) (sign.Key, error)
	// Activation returns the book's event for a lease with a first voucher checked in slot now.
	Activation(s *billing.Meter, funding []byte, now market.Slot) lease.Event
	// May returns nil when work may begin under an active lease, and else a refusal. It waits a moment for the lease's
	// funds.
	May(ctx context.Context, r lease.Record) error
	// Run does the work in addition to the leases until ctx ends.
	Run(ctx context.Context)
	// Accounts returns the known accounts of the leases.
	Accounts() map[market.LeaseID]settle.Account
}

// credits is the knowledge of the money of buyers.
type credits interface {
	// Backing returns the security behind an order, nil if none is required, or refuses the order.
	Backing(ctx context.Context, o market.Order, standing admit.Standing, from netip.Prefix) (*lease.Backing, error)
	// Recent returns the security behind an order of a buyer that paid here, as it was a minute ago at most, or nil.
	Recent(o market.Order) *lease.Backing
}

// Provider sells the units of one peer. New starts nothing; Run does.
type Provider struct {
	*Operator
	cfg      Config
	domain   sign.Domain
	tag      string
	self     sign.Key
	ledger   *ledger.Ledger
	meters   *billing.Meters
	board    *offers.Board
	quotes   *quotes
	pay      payments
	fees     *fees.Fees // nil if no fees are paid
	exec     *service.Service
	work     Work // exec, or a test's
	overlays overlays
	ready    ready
	counts   counts
}

// Timing of leases, in slots and as multiples of the metering interval.
const (
	startWithinIntervals = 10 // the largest difference of a lease's start from the own slot
	minStartSlots        = 100
	activateIntervals    = 6 // the time limit of its payment: buyers take 5 intervals and 50 slots
	minActivateSlots     = 75

	// signTTL, and signSlots, is how much longer than its hold a signed lease may wait to be activated: its buyer signs
	// with all other providers of the order, and sets their money aside.
	signTTL   = 20 * time.Second
	signSlots = 50
)

// leaseRates bound the steps of leases, each of which may cost a write to the journal. A buyer of hundreds of units
// makes three steps for each.
func leaseRates() *admit.Rates {
	return admit.NewRates(admit.Rate{PerSecond: 50, Burst: 800}, admit.Rate{PerSecond: 100, Burst: 1600},
		admit.Rate{PerSecond: 200, Burst: 3200})
}

// New checks the configuration and reads the journal of an earlier process.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	p := &Provider{cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key()}
	p.quotes = newQuotes(p)
	units, err := policy.Units(cfg.Lots, cfg.Genesis)
	if err != nil {
		return nil, err
	}
	if p.Operator, err = newOperator(ctx, cfg); err != nil {
		return nil, err
	}
	limits := p.limits(len(units))
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	book := lease.NewBook(units, limits)
	if cfg.Genesis.AuditSlots > 0 {
		book = book.WithShown(nil) // until Show sets their proofs
	}
	if p.ledger, err = ledger.New(ctx, ledger.Config{
		Store: cfg.Store, Clock: cfg.Slots, Book: book, Carrier: carrier{p}, Lapses: cfg.Escrows != nil, Log: cfg.Log,
		Every: max(p.lasts(cfg.Genesis.IntervalSlots)/2, 100*time.Millisecond),
	}); err != nil {
		return nil, err
	}
	if p.board, err = p.newBoard(ctx); err != nil {
		return nil, err
	}
	p.Operator.book, p.Operator.changed = p.ledger, p.board.Change
	p.exec = service.New(service.Config{
		Host: cfg.Host, Tag: p.tag, Domain: p.domain, Key: cfg.Key, Keys: cfg.Keys,
		Dir: filepath.Join(cfg.Dir, "exec"), Store: cfg.Store, Blobs: cfg.Blobs, Files: cfg.Files, Devices: cfg.Devices,
		Machine: workload.Host{
			Runtimes: cfg.Runtimes, Network: cfg.Network, AllowImage: cfg.Policy.AllowImage, Secrets: true,
		},
		Networks: cfg.Networks, Leases: room{p}, Retain: cfg.Retain, MaxBytes: cfg.RetainBytes, Log: cfg.Log,
	})
	p.work = p.exec
	if p.meters, err = billing.New(ctx, billing.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Domain: p.domain, Tag: p.tag, Key: cfg.Key, Store: cfg.Store,
		Slots: cfg.Slots, Ledger: p.ledger, Work: p.work, Money: money{p}, Filed: receipts{p}, Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	if p.pay = (pay.Free{}); cfg.Escrows != nil {
		p.fees = fees.New(cfg.Escrows.Chain.Funds, cfg.Escrows.Fees, cfg.Genesis.Decimals)
		p.pay, err = pay.New(ctx, pay.Config{
			Escrows: *cfg.Escrows, Genesis: cfg.Genesis, Self: p.self, Store: cfg.Store, Slots: cfg.Slots,
			Reputation: cfg.Reputation, Ledger: p.ledger, Meters: p.meters, Log: cfg.Log,
		})
	}
	return p, err
}

// money is the provider's payments, which are made after its meters.
type money struct{ p *Provider }

func (m money) Opened(ctx context.Context, s *billing.Meter) { m.p.pay.Opened(ctx, s) }
func (m money) Earned(s *billing.Meter)                      { m.p.pay.Earned(s) }

// limits returns the limits of the lease book.
func (p *Provider) limits(units int) lease.Limits {
	cfg, interval := p.cfg, p.cfg.Genesis.IntervalSlots
	longest := map[market.Class]uint64{}
	for _, lot := range cfg.Lots {
		if lot.MaxSlots > 0 {
			longest[lot.Class] = lot.MaxSlots
		}
	}
	l := lease.Limits{
		Provider: p.self, Payout: cfg.Owner, Domain: p.domain, SlotMillis: cfg.Genesis.SlotMillis,
		Decimals: cfg.Genesis.Decimals, Asks: asks(cfg.Lots, p.settings()), Region: cfg.Region,
		Runtimes: slices.Sorted(maps.Keys(cfg.Runtimes)), MinSlots: cfg.MinSlots, MaxSlots: cfg.MaxSlots,
		Longest: longest, HoldTTL: cfg.HoldTTL,
		SignTTL:  max(signTTL, time.Duration(signSlots*cfg.Genesis.SlotMillis)*time.Millisecond),
		MaxHolds: 4 * units, MaxHoldsPerBuyer: 2 * units, MaxLeasesPerBuyer: cfg.Policy.MaxLeasesPerBuyer,
		MaxMembers:     cfg.Policy.Clusters.MaxMembers,
		StartWithin:    startWithinIntervals*interval + minStartSlots,
		ActivateWithin: activateIntervals*interval + minActivateSlots, MarginSlots: interval,
	}
	if cfg.Networks != nil {
		l.OverlayKey = func(h market.HoldID) market.OverlayKey { return cfg.Keys.Member(h).Public() }
	}
	return l
}

// newBoard returns the offers.
func (p *Provider) newBoard(ctx context.Context) (*offers.Board, error) {
	template := market.Offer{
		Provider: p.self, Region: p.cfg.Region, MinSlots: p.cfg.MinSlots, MaxSlots: p.cfg.MaxSlots,
		Runtimes: slices.Sorted(maps.Keys(p.cfg.Runtimes)), Payout: p.cfg.Owner, Version: p.cfg.Version,
		GenesisHash: p.cfg.Genesis.Hash(),
	}
	if containers(p.cfg.Runtimes) {
		template.Images = market.NewImagePolicy(p.cfg.Policy.Images)
	}
	return offers.New(ctx, offers.Config{
		Domain: p.domain, Key: p.cfg.Key, Store: p.cfg.Store, Lots: p.cfg.Lots, Hours: p.cfg.Policy.Hours,
		Template: template, Provider: seen{p}, Images: &p.ready, Publisher: p.cfg.Market, Log: p.cfg.Log,
	})
}

// Run sells until ctx ends. Running programs run on for the next process.
func (p *Provider) Run(ctx context.Context) error {
	p.meters.Restart(ctx)
	if err := p.exec.Restore(ctx); err != nil {
		return fmt.Errorf("restoring executions: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // meters use the book longer than ctx
	var book errgroup.Group
	book.Go(func() error {
		err := p.ledger.Run(keeping)
		if err != nil {
			fail(err)
		}
		return err
	})
	err := p.sell(ctx)
	stop()
	return errors.Join(err, book.Wait())
}

// sell sells until ctx ends. The lease book is being served.
func (p *Provider) sell(ctx context.Context) error {
	if err := p.ledger.Resumed(ctx); err != nil {
		return fmt.Errorf("resuming leases: %w", err)
	}
	if p.Paused() {
		p.cfg.Log.Warn("nothing new is sold: the offers are paused or drained",
			"advice", "`starling provider resume` sells again")
	}
	if err := p.meters.Resume(ctx); err != nil {
		return fmt.Errorf("resuming leases: %w", err)
	}
	if p.fees != nil {
		p.fees.Look(ctx) // before anything is sold
	}
	logger := stream.Limits{Logger: p.cfg.Log}
	steps := stream.Limits{PerPeer: 64, Rates: leaseRates(), Logger: p.cfg.Log}
	servers := []*stream.Server{
		protocol.Ask.Handle(p.cfg.Host, p.tag, p.quotes.handleAsk, logger),
		protocol.Lease.Handle(p.cfg.Host, p.tag, leases{p}.handleLease, steps),
	}
	paths := link.New(p.cfg.Host, p.tag, room{p}, p.cfg.Log)
	g, gctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context){
		p.pay.Run, p.watchFees, p.board.Run, p.exec.Run,
		func(ctx context.Context) { p.overlays.try(ctx, p) }, func(ctx context.Context) { p.ready.watch(ctx, p) },
	} {
		g.Go(func() error { run(gctx); return nil })
	}
	g.Go(func() error { return p.quotes.listen(gctx) })
	err := g.Wait()
	paths.Close()
	for _, s := range servers {
		s.Close()
	}
	p.meters.Wait()
	return err
}

// feeless returns the reason why no further lease can be sold because of missing fees: "" if one can.
func (p *Provider) feeless() string {
	if p.fees == nil {
		return ""
	}
	return p.fees.Short(p.ledger.Book())
}

// watchFees reads the key's lamports while units are for sale, or sold, until ctx ends. The offers are withdrawn while
// the key has too few.
func (p *Provider) watchFees(ctx context.Context) {
	if p.fees == nil {
		return
	}
	t := time.NewTicker(fees.Every)
	defer t.Stop()
	last := ""
	for {
		if _, live := p.fees.Live(p.ledger.Book()); live > 0 || len(p.cfg.Lots) > 0 && !p.Paused() {
			p.fees.Look(ctx)
		}
		why := p.feeless()
		switch {
		case why != "" && last == "":
			p.cfg.Log.Warn("nothing is sold: "+why+"; send SOL to the key", "key", p.self)
		case why == "" && last != "":
			p.cfg.Log.Info("there is SOL for fees again: offers are made")
		}
		if (why == "") != (last == "") {
			p.board.Change()
		}
		last = why
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// lasts returns the nominal duration of a number of slots.
func (p *Provider) lasts(slots uint64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour // and no more: it must fit a Duration
	hi, millis := bits.Mul64(slots, p.cfg.Genesis.SlotMillis)
	if hi > 0 || millis > uint64(century/time.Millisecond) {
		return century
	}
	return time.Duration(millis) * time.Millisecond
}

// Accounts returns the accounts of leases that are paid from escrows, including ended leases.
func (p *Provider) Accounts() map[market.LeaseID]settle.Account { return p.pay.Accounts() }

// Members returns the number of executions of this peer that are members of a cluster.
func (p *Provider) Members() int { return p.exec.Members() }

// Blobs returns the files that executions need: outputs of all executions, and programs and inputs of running ones.
func (p *Provider) Blobs() map[cid.Cid]bool { return p.exec.Blobs() }
