package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/meter"
)

// A lease and the successors that make it longer are a line. Executions belong to the line and are named by its first lease;
// each lease has a meter of its own.

// extendEvent reads a successor that a buyer has signed. Earlier promises are kept even if the operator has paused
// meanwhile.
func (p *Provider) extendEvent(by sign.Key, e *marketpb.Extend) (lease.Event, error) {
	if len(e.GetLease()) != len(market.LeaseID{}) || len(e.GetSignature()) != sign.SignatureSize {
		return nil, &stream.Malformed{Reason: "lease id or signature has a wrong size"}
	}
	core, err := market.UnmarshalLeaseCore(e.Core)
	if err != nil {
		return nil, &stream.Malformed{Reason: err.Error()}
	}
	ev := lease.ExtendRequested{Lease: market.LeaseID(e.Lease), By: by, Core: core, BuyerSig: sign.Signature(e.Signature)}
	p.mu.Lock()
	known := p.book.Extended(ev.Lease)
	p.mu.Unlock()
	if known {
		return ev, nil
	}
	if no := p.cfg.Policy.serves(by); no != nil {
		return nil, refusal(no)
	}
	if p.paused() {
		return nil, refusal(market.Refuse(market.ReasonPaused, "this provider sells nothing new for now, and makes no lease longer"))
	}
	now := time.Now()
	slot, err := p.cfg.Slots.Now(now)
	if err != nil {
		return nil, p.failed(err)
	}
	if core.End > slot {
		if err := p.cfg.Policy.Hours.Covers(now, now.Add(p.lasts(uint64(core.End-slot)))); err != nil {
			return nil, refusal(market.Refuse(market.ReasonClosed, "%v", err))
		}
	}
	return ev, nil
}

// takesOver is the lease that takes over the execution now that this one is over; nil when there is none.
func (s *sale) takesOver(ctx context.Context) (*lease.Record, error) {
	p := s.p
	p.mu.Lock()
	extended := p.book.Extended(s.rec.Lease)
	p.mu.Unlock()
	if !extended {
		return nil, nil
	}
	// The meter may have seen before the book that the time is over.
	if _, err := p.step(ctx, lease.Ticked{}); err != nil {
		return nil, fmt.Errorf("ending a lease that was extended: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.book.Lease(s.rec.Lease)
	if !ok || r.HandedTo.IsZero() {
		return nil, nil
	}
	next, ok := p.book.Lease(r.HandedTo)
	if !ok {
		return nil, fmt.Errorf("lease %s went over to %s, which is not in the book", r.Lease.Short(), r.HandedTo.Short())
	}
	return &next, nil
}

// handOver ends the metering of a lease with work that goes on under the next one. The next one first gets the usage
// before its time, so that no CPU time is reported twice. The lease stays in the book until it is settled.
func (s *sale) handOver(ctx context.Context, next lease.Record) ([]meter.Effect, error) {
	n, err := s.p.waitSale(ctx, next)
	if err != nil {
		return nil, err
	}
	if _, err := n.step(ctx, meter.TakenOver{CPUMillis: s.p.exec.cpuMillis(ctx, s.rec.First())}); err != nil {
		return nil, err
	}
	n.mu.Lock()
	used, _ := n.seller.TakenAt()
	n.mu.Unlock()
	s.mu.Lock()
	again := s.handed
	s.handed = true
	s.mu.Unlock()
	var effects []meter.Effect
	if !again && s.mine() {
		if effects, err = s.step(ctx, meter.UsageSampled{CPUMillis: used}); err != nil {
			return nil, err
		}
	}
	ended, err := s.step(ctx, meter.WorkEnded{})
	if err == nil && !again {
		s.p.cfg.Log.Info("what runs goes over to the lease that follows", "lease", s.rec.Lease, "next", next.Lease)
	}
	return append(effects, ended...), err
}

// mine reports whether the CPU time that is used now is this lease's.
func (s *sale) mine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, taken := s.seller.TakenAt()
	return s.rec.Root.IsZero() || taken
}

// workEnded is the end of the lease's work, by now. A successor that took nothing over has not worked, however late it is.
func (s *sale) workEnded() meter.WorkEnded {
	ev := meter.WorkEnded{Output: s.p.exec.digest(s.rec.First())}
	if !s.mine() {
		ev.At = s.rec.Core.Start - 1
	}
	return ev
}

// sample sends the meter the usage, if that is the lease's.
func (s *sale) sample(ctx context.Context) ([]meter.Effect, error) {
	s.mu.Lock()
	handed := s.handed
	s.mu.Unlock()
	if handed || !s.mine() {
		return nil, nil
	}
	return s.step(ctx, meter.UsageSampled{CPUMillis: s.p.exec.cpuMillis(ctx, s.rec.First())})
}

// ended lists the leases with remaining files whose line is over and settled.
func (p *Provider) ended() []market.LeaseID {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines, busy := map[market.LeaseID]market.LeaseID{}, map[market.LeaseID]bool{} // lines by lease
	for id, s := range p.sales {
		lines[id] = s.rec.First()
		if s.busy() {
			busy[s.rec.First()] = true
		}
	}
	for _, id := range p.exec.leases() {
		lines[id] = id
	}
	for r := range p.book.Records() {
		if r.Core != nil && r.State.Live() {
			busy[r.First()] = true
		}
	}
	var out []market.LeaseID
	for id, line := range lines {
		if !busy[line] {
			out = append(out, id)
		}
	}
	return out
}

// busy reports whether the loop of the sale runs on.
func (s *sale) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running && s.seller.State() != meter.SellerSettled
}
