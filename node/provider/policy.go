package provider

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/reputation"
)

// Policy is the operator's permissions beyond the lots themselves. The zero Policy allows everything.
type Policy struct {
	Hours Hours
	// Block are buyers that are not served; the reason is the operator's own note and is not sent to them.
	Block map[sign.Key]string
	// Blocked reports whether a peer is blocked at run time besides; nil means nobody.
	Blocked func(sign.Key) bool
	// Only are the buyers that are served; if empty, all that are not blocked.
	Only []sign.Key
	// MaxLeasesPerBuyer bounds the leases and holds of one buyer at a time; 0 means no bound.
	MaxLeasesPerBuyer int
	// MinReputation is the least score of a buyer, in millionths: buyers below it are not served, newcomers neither; 0
	// means no minimum.
	MinReputation uint32
	Images        market.Images
	Clusters      Clusters
}

// Clusters is the operator's permissions for clusters. The zero Clusters allows all.
type Clusters struct {
	No         bool // it takes part in none
	MaxMembers int  // leases and holds that are members of clusters, at a time; 0 means no bound
}

// serves refuses buyers that the operator does not want. It says to all of them the same.
func (pol *Policy) serves(buyer sign.Key) *market.Refusal {
	_, blocked := pol.Block[buyer]
	if blocked || pol.Blocked != nil && pol.Blocked(buyer) || len(pol.Only) > 0 && !slices.Contains(pol.Only, buyer) {
		return market.Refuse(market.ReasonBlocked, "this provider does not serve you")
	}
	return nil
}

// admits reports whether something new may be sold to the order's buyer now.
func (p *Provider) admits(ctx context.Context, o market.Order, now time.Time) *market.Refusal {
	if refusal := p.cfg.Policy.serves(o.Peer()); refusal != nil {
		return refusal
	}
	if least := p.cfg.Policy.MinReputation; least > 0 {
		if s := p.cfg.Reputation.Scores(reputation.Buyer, o.Peer())[0]; s.Millionths < least {
			return market.Refuse(market.ReasonReputation, "your reputation as a buyer is %.4f here, at least %.4f is asked", float64(s.Millionths)/1e6, float64(least)/1e6)
		}
	}
	if p.paused() {
		return market.Refuse(market.ReasonPaused, "this provider sells nothing new for now")
	}
	if why := p.feeless(); why != "" {
		return market.Refuse(market.ReasonPaused, "this provider sells nothing for now: %s", why)
	}
	if no := p.egress().Refuse(o.Egress); no != nil {
		return no
	}
	if err := p.cfg.Policy.Hours.Covers(now, now.Add(p.lasts(o.Slots))); err != nil {
		return market.Refuse(market.ReasonClosed, "%v", err)
	}
	if prober, ok := p.cfg.Runtimes[o.Runtime].(runtime.Prober); ok && !p.probes.ready(ctx, o.Runtime, prober, now, p.cfg.Log) {
		return market.Refuse(market.ReasonRuntime, "%s", noEngine)
	}
	return nil
}

const (
	// noEngine is a buyer's message about a container engine that does not answer; its operator's has more.
	noEngine = "this provider's container engine does not answer"
	// probeEvery is how long an answer of a runtime's engine counts, probeWait how long one is waited for.
	probeEvery = time.Second
	probeWait  = 2 * time.Second
)

// probes remember which runtimes could start something: a provider must not be paid for work that it cannot do.
type probes struct {
	mu    sync.Mutex
	known map[string]probed // by runtime
}

type probed struct {
	at    time.Time
	ready bool
}

// ready asks the runtime's engine, at most once in a while.
func (p *probes) ready(ctx context.Context, name string, r runtime.Prober, now time.Time, log *slog.Logger) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, asked := p.known[name]
	if asked && now.Sub(last.at) < probeEvery {
		return last.ready
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWait)
	defer cancel()
	err := r.Probe(ctx)
	if p.known == nil {
		p.known = map[string]probed{}
	}
	p.known[name] = probed{now, err == nil}
	switch {
	case err != nil && (last.ready || !asked):
		log.Warn("nothing can be started; orders are refused until that changes", "runtime", name, "err", err)
	case err == nil && asked && !last.ready:
		log.Info("programs can be started again", "runtime", name)
	}
	return err == nil
}

// lasts is how long so many slots take, at their nominal length.
func (p *Provider) lasts(slots uint64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour // and no more: it must fit a Duration
	return time.Duration(min(slots*p.cfg.Genesis.SlotMillis, uint64(century/time.Millisecond))) * time.Millisecond
}
