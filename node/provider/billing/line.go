package billing

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/verify/meter"
)

// A line is a lease and the successors that extend it. Executions belong to the line and are named by its first lease;
// each lease has its own meter.

// takesOver returns the lease that takes over the execution of this ended lease; nil if there is none.
func (s *Meter) takesOver(ctx context.Context) (*lease.Record, error) {
	p := s.p
	extended := p.cfg.Ledger.Book().Extended(s.rec.Lease)
	if !extended {
		return nil, nil
	}
	// The meter may see the end of the lease before the book does.
	if _, err := p.cfg.Ledger.Step(ctx, lease.Ticked{}); err != nil {
		return nil, fmt.Errorf("ending a lease that was extended: %w", err)
	}
	book := p.cfg.Ledger.Book()
	r, ok := book.Lease(s.rec.Lease)
	if !ok || r.HandedTo.IsZero() {
		return nil, nil
	}
	next, ok := book.Lease(r.HandedTo)
	if !ok {
		return nil, fmt.Errorf("lease %s went over to %s, which is not in the book",
			r.Lease.Short(), r.HandedTo.Short())
	}
	return &next, nil
}

// handOver ends the metering of a lease whose work continues under the next one. The next lease first gets the usage
// before its time, so that no CPU time is reported twice. The lease stays in the book until it is settled.
func (s *Meter) handOver(ctx context.Context, next lease.Record) ([]meter.Effect, error) {
	n, err := s.p.wait(ctx, next)
	if err != nil {
		return nil, err
	}
	if _, err := n.step(ctx, meter.TakenOver{CPUMillis: s.p.cfg.Work.CPUMillis(ctx, s.rec.First())}); err != nil {
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
		s.p.cfg.Log.Info("executions continue under the next lease", "lease", s.rec.Lease, "next", next.Lease)
	}
	return append(effects, ended...), err
}

// mine reports whether the CPU time that is used now is this lease's.
func (s *Meter) mine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, taken := s.seller.TakenAt()
	return s.rec.Root.IsZero() || taken
}

// workEnded is the end of the lease's work, by now. A successor that took nothing over has not worked, however late it
// is.
func workEnded(s *Meter) meter.WorkEnded {
	ev := meter.WorkEnded{Output: s.p.cfg.Work.Digest(s.rec.First())}
	if !s.mine() {
		ev.At = s.rec.Core.Start - 1
	}
	return ev
}

// sample sends the meter the usage, if that is the lease's.
func (s *Meter) sample(ctx context.Context) ([]meter.Effect, error) {
	s.mu.Lock()
	handed := s.handed
	s.mu.Unlock()
	if handed || !s.mine() {
		return nil, nil
	}
	return s.step(ctx, meter.UsageSampled{CPUMillis: s.p.cfg.Work.CPUMillis(ctx, s.rec.First())})
}

// busy reports whether the loop of the sale runs on.
func (s *Meter) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running && s.seller.State() != meter.SellerSettled
}
