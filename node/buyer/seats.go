package buyer

import (
	"context"
	"errors"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/store"
)

// orderGang orders leases for ranks of the job. The machine gets exactly one answer.
func (s *supervisor) orderGang(fx jobs.OrderGang) {
	ctx, cancel := context.WithCancel(s.b.desk.ctx)
	s.mu.Lock()
	s.gangs[fx.Gang] = cancel
	s.mu.Unlock()
	s.b.wg.Go(func() {
		defer cancel()
		f, err := s.formGang(ctx, fx)
		s.mu.Lock()
		delete(s.gangs, fx.Gang)
		if err == nil {
			s.tries, s.thin = 0, 0
		}
		s.mu.Unlock()
		if err == nil {
			s.formedGang(fx, f)
			return
		}
		if stray := f.stray(); len(stray) > 0 { // each may cost its first interval: the machine counts and ends it
			s.post(jobs.GangFormed{Leases: stray})
		}
		s.post(failureOf(ctx, fx.Gang, err))
	})
}

// cancelGang has a gang end early.
func (s *supervisor) cancelGang(fx jobs.CancelGang) {
	s.mu.Lock()
	cancel := s.gangs[fx.Gang]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// failureOf is the failure of a gang.
func failureOf(ctx context.Context, id jobs.GangID, err error) jobs.GangFailed {
	out := jobs.GangFailed{Gang: id, Why: jobs.GangShort, Reason: err.Error()}
	var none *unplaced
	switch {
	case errors.Is(err, jobs.ErrDropped) || ctx.Err() != nil:
		out.Why = jobs.GangDropped
	case errors.As(err, &none) && !none.thin && !none.raced && !none.unsettled:
		out.Why = jobs.GangUnfit
	}
	return out
}

// formGang journals an order, publishes it, and takes all its leases or none. The result is not nil after an order of
// which leases were being taken.
func (s *supervisor) formGang(ctx context.Context, fx jobs.OrderGang) (*forming, error) {
	var ranks []uint32
	for _, seat := range fx.Seats {
		ranks = append(ranks, seat.Rank)
	}
	s.mu.Lock()
	choosy, thin := s.tries == 0, s.thin
	s.tries++
	s.mu.Unlock()
	o, env, err := s.compose(len(ranks), fx.Slots, fx.Cap, choosy, thin)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.job.Orders = append(slices.Clip(s.job.Orders), o.ID)
	s.mu.Unlock()
	placed := event{
		ev:   jobs.OrderPlaced{Gang: fx.Gang, Order: o.ID},
		puts: []store.Put{{Kind: kindOrder, Key: o.ID.String(), Value: env}},
	}
	if _, err := s.b.desk.runner.Ask(ctx, s, placed); err != nil {
		s.mu.Lock()
		s.job.Orders = slices.DeleteFunc(slices.Clone(s.job.Orders), func(id market.OrderID) bool { return id == o.ID })
		s.mu.Unlock()
		return nil, err
	}
	f, err := s.take(ctx, o, env, ranks)
	if none := (*unplaced)(nil); errors.As(err, &none) && none.thin {
		s.mu.Lock()
		s.thin++
		s.mu.Unlock()
	}
	return f, err
}

// formedGang reports the leases of a gang, which are active.
func (s *supervisor) formedGang(fx jobs.OrderGang, f *forming) {
	formed := jobs.GangFormed{Gang: fx.Gang}
	s.mu.Lock()
	for _, seat := range fx.Seats {
		l := f.leases[seat.Rank]
		formed.Leases = append(formed.Leases, l.fact())
		q := f.quotes[l.core.Provider]
		s.offers[l.id] = offered{q.Route, unitsOf(q.Quote)}
	}
	s.mu.Unlock()
	for _, seat := range fx.Seats {
		s.watchLine(f.leases[seat.Rank])
	}
	s.report(event{ev: formed, puts: f.puts})
}

// stray are the leases of a gang that was not formed for which a first voucher was signed. It waits for steps that are
// under way.
func (f *forming) stray() (out []jobs.Lease) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	funded := false
	for _, d := range f.drafts {
		funded = funded || d.funded != nil
	}
	f.mu.Unlock()
	if !funded {
		return nil
	}
	f.wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.drafts {
		if d.lease != nil && f.s.chain(d.lease.id) != nil {
			out = append(out, d.lease.fact())
		}
	}
	return out
}
