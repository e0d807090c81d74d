package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
)

// route is a way on which orders reach providers.
type route struct {
	name    string
	into    *RouteReport
	samples int
	count   uint32 // leases of each order
	gossip  bool
	after   func(context.Context) error // a further measurement on the same network
}

// network measures real processes. Each route gets a new network, because a local chain blocks its callers for seconds
// after a thousand transactions.
func (b *bench) network(ctx context.Context) error {
	b.say("%d peer processes, of which %d sell", benchPeers, benchPeers-1)
	r := b.report
	for _, m := range []route{
		{name: "direct", into: &r.Direct, samples: b.o.Samples, count: 1},
		{name: "gossip", into: &r.Gossip, samples: b.o.Samples, count: 1, gossip: true},
		{name: "gang_direct", into: &r.GangDirect, samples: min(benchGangs, b.o.Samples), count: benchGang},
		{name: "gang_gossip", into: &r.GangGossip, samples: min(benchGangs, b.o.Samples), count: benchGang,
			gossip: true, after: b.rest},
	} {
		b.try(ctx, m.name, func() error { return b.fresh(ctx, func() error { return m.measure(ctx, b) }) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if b.net != nil {
		b.say("   %d jobs are settled, %s owed and paid",
			r.Payment.Settled, b.net.Genesis.FormatAmount(market.Amount(r.Payment.Paid)))
	}
	return nil
}

// measure measures the route on a new network.
func (m route) measure(ctx context.Context, b *bench) error {
	if err := b.stage(m.name, func() (err error) {
		*m.into, err = b.orders(ctx, b.spec(m.count, m.gossip), m.samples)
		return err
	}); err != nil {
		return err
	}
	b.say("   %-12s %d orders, %d more refused at first: %s", m.name, m.into.Orders, m.into.Again, m.into.ToLease)
	if m.after != nil {
		if err := m.after(ctx); err != nil {
			return err
		}
	}
	return b.stage("settle_"+m.name, func() error { return b.settled(ctx) })
}

// fresh starts a network, measures it and stops it.
func (b *bench) fresh(ctx context.Context, measure func() error) (err error) {
	b.jobs, b.unsettled, b.paid = nil, nil, map[sign.Key]bool{}
	if err := b.stage("network_start", func() error { return b.start(ctx) }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.net.Stop()) }()
	return measure()
}

// rest runs the measurements that need no network of their own.
func (b *bench) rest(ctx context.Context) error {
	if err := b.stage("starts", func() error { return b.starts(ctx) }); err != nil {
		return fmt.Errorf("starts: %w", err)
	}
	if err := b.calm(ctx); err != nil {
		return err
	}
	return b.stage("idle", func() error { return b.idle(ctx) })
}

// calm waits until every job is settled.
func (b *bench) calm(ctx context.Context) error {
	for {
		for _, id := range slices.Clone(b.unsettled) {
			j, err := api.GetJob.Call(ctx, b.client, api.ByID{ID: id})
			if err != nil {
				return err
			}
			if j.State.Ended() {
				for _, r := range j.Ranks {
					b.paid[r.Provider] = true
				}
				b.unsettled = slices.DeleteFunc(b.unsettled, func(other string) bool { return other == id })
			}
		}
		if len(b.unsettled) == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d jobs are not settled: %w", len(b.unsettled), err)
		}
	}
}
