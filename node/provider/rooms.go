package provider

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/verify"
)

// carrier carries out the effects of the lease book.
type carrier struct{ p *Provider }

func (c carrier) Activate(r lease.Record)           { c.p.meters.Open(r, "") }
func (c carrier) End(r lease.Record, reason string) { c.p.meters.End(r, reason) }
func (c carrier) Changed()                          { c.p.board.Change() }
func (c carrier) Stepped(before lease.Book, ev lease.Event, effects []lease.Effect) {
	c.p.counts.stepped(before, ev, effects)
}

// receipts publishes receipts and broken leases.
type receipts struct{ p *Provider }

func (f receipts) Filed(l market.Lease, units []market.UnitID, r verify.Receipt) {
	f.p.cfg.Filed(l, units, r)
}
func (f receipts) Failed(c market.LeaseCore, lost market.Amount) { f.p.cfg.Reputation.Failed(c, lost) }

// seen is the provider as its offers show it.
type seen struct{ p *Provider }

func (s seen) Book() lease.Book      { return s.p.ledger.Book() }
func (s seen) Addrs() []ma.Multiaddr { return s.p.cfg.Host.Addrs() }

// Selling reports whether anything new is sold now.
func (s seen) Selling(now time.Time) bool {
	open, _ := s.p.cfg.Policy.Hours.At(now)
	return open && !s.p.Paused() && s.p.feeless() == ""
}

// Clusters reports whether any program of this peer can be a member of a cluster; true while it has not tried.
func (s seen) Clusters() bool { return !s.p.cfg.Policy.Clusters.No && !s.p.overlays.none.Load() }

// Coordinate returns this peer's place in the network.
func (s seen) Coordinate() market.Coordinate {
	if s.p.cfg.Coordinate == nil {
		return market.Coordinate{}
	}
	return s.p.cfg.Coordinate()
}

// Egress returns the network access of the containers that run here.
func (s seen) Egress() market.Egress {
	if !containers(s.p.cfg.Runtimes) || s.p.overlays.none.Load() {
		return market.EgressNone
	}
	switch s.p.cfg.Network {
	case egress.ModeInternet:
		return market.EgressInternet
	case egress.ModeAllowlist:
		return market.EgressListed
	default:
		return market.EgressNone
	}
}

// containers reports whether any runtime runs images.
func containers(runtimes map[string]runtime.Runtime) bool {
	for _, r := range runtimes {
		if _, ok := r.(runtime.Images); ok {
			return true
		}
	}
	return false
}

// overlaysAgain is after how long a peer that can have no member of a cluster tries again: its engine may have been
// away.
const overlaysAgain = 2 * time.Minute

// overlays checks whether programs here can be members of clusters.
type overlays struct {
	none atomic.Bool // no program can be given a network
}

// try finds out which runtimes can have members, before the first order, and notifies the offers of changes. It returns
// when there is one, or ctx ends.
func (o *overlays) try(ctx context.Context, p *Provider) {
	logged := map[string]string{}
	for {
		none := true
		for name, rt := range p.cfg.Runtimes {
			err := p.work.Joins(ctx, rt)
			if ctx.Err() != nil {
				return
			}
			none = none && err != nil
			if why := fmt.Sprint(err); logged[name] != why {
				logged[name] = why
				p.cfg.Log.Info("whether executions may be members of clusters", "runtime", name, "why_not", err)
			}
		}
		if o.none.Swap(none) != none {
			p.board.Change()
		}
		if !none {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(overlaysAgain):
		}
	}
}

// joins refuses one more program of a runtime as a member of a cluster.
func (p *Provider) joins(ctx context.Context, runtime string) *market.Refusal {
	if p.cfg.Policy.Clusters.No {
		return market.Refuse(market.ReasonRuntime, "this provider's operator takes part in no clusters")
	}
	if rt := p.cfg.Runtimes[runtime]; rt != nil {
		if err := p.work.Joins(ctx, rt); err != nil {
			return market.Refuse(market.ReasonRuntime, "%v", err)
		}
	}
	return nil
}
