package buyer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
)

// orders are the orders of leases for a job.
type orders struct {
	*driver
	measuring sync.Mutex // one change of the paths between members at a time; taken before the supervisor's mu

	// Under the supervisor's mu:
	gangs  map[jobs.GangID]context.CancelFunc
	tries  int // orders since one was filled
	thin   int // of these, those for which too few providers were to quote
	offers map[market.LeaseID]offered
	took   time.Duration // to fill the order that was filled last
}

// offered is the content of a lease's quote.
type offered struct {
	route string
	units Units
}

// place orders leases for ranks of the job. The machine gets exactly one answer.
func (o *orders) place(fx jobs.OrderGang) {
	ctx, cancel := context.WithCancel(o.b.desk.ctx)
	o.s.mu.Lock()
	o.gangs[fx.Gang] = cancel
	o.s.mu.Unlock()
	o.b.wg.Go(func() {
		defer cancel()
		began := time.Now()
		f, err := o.form(ctx, fx)
		o.s.mu.Lock()
		delete(o.gangs, fx.Gang)
		if err == nil {
			o.tries, o.thin, o.took = 0, 0, time.Since(began)
		}
		o.s.mu.Unlock()
		if err == nil {
			o.formed(fx, f)
			return
		}
		if stray := f.stray(); len(stray) > 0 { // each may cost its first interval: the machine counts and ends it
			o.post(jobs.GangFormed{Leases: stray})
		}
		o.post(failureOf(ctx, fx.Gang, err))
		if errors.Is(err, pay.ErrNoPlace) {
			o.post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: pay.ErrNoPlace.Error()})
		}
	})
}

// cancel has a gang end early.
func (o *orders) cancel(fx jobs.CancelGang) {
	o.s.mu.Lock()
	cancel := o.gangs[fx.Gang]
	o.s.mu.Unlock()
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

// form journals an order, publishes it, and takes all its leases or none. The result is not nil after an order of
// which leases were being taken.
func (o *orders) form(ctx context.Context, fx jobs.OrderGang) (*forming, error) {
	var ranks []uint32
	for _, seat := range fx.Seats {
		ranks = append(ranks, seat.Rank)
	}
	o.s.mu.Lock()
	choosy, thin := o.tries == 0, o.thin
	o.tries++
	o.s.mu.Unlock()
	slots, budget := fx.Slots, fx.Cap
	if fx.Standby {
		var err error
		if slots, err = o.s.standbySlots(slots); err != nil {
			return nil, err
		}
		choosy, thin, budget = false, 0, 0
	}
	valid, until := orderValidity, fx.Until
	switch {
	case fx.Standby: // its quotes are there
	case choosy && len(o.s.snapshot().Lost) > 0:
		until = time.Time{} // the next order takes providers that lost a rank, too
	default:
		valid = min(max(valid, time.Until(until)+formTimeout), market.MaxOrderValidity-orderValidity)
	}
	order, env, err := o.s.compose(len(ranks), slots, budget, choosy, thin, valid)
	if err != nil {
		return nil, err
	}
	placed := event{
		ev:    jobs.OrderPlaced{Gang: fx.Gang, Order: order.ID},
		puts:  []store.Put{ordersSent.Encode(order.ID.String(), env)},
		amend: &amendment{change: func(j *Job) { j.Orders = append(slices.Clip(j.Orders), order.ID) }},
	}
	if _, err := o.ask(ctx, placed); err != nil {
		return nil, err
	}
	if fx.Standby {
		return o.s.hire(ctx, order, env, ranks)
	}
	f, err := o.s.take(ctx, order, env, ranks, until)
	if none := (*unplaced)(nil); errors.As(err, &none) && none.thin {
		o.s.mu.Lock()
		o.thin++
		o.s.mu.Unlock()
	}
	return f, err
}

// formed reports the leases of a gang, which are active.
func (o *orders) formed(fx jobs.OrderGang, f *forming) {
	formed := jobs.GangFormed{Gang: fx.Gang}
	o.s.mu.Lock()
	for _, seat := range fx.Seats {
		l := f.leases[seat.Rank]
		formed.Leases = append(formed.Leases, factOf(l))
		q := f.quote(l.Core.Provider)
		o.offers[l.ID] = offered{q.Route, record.UnitsOf(q.Quote)}
	}
	o.s.mu.Unlock()
	defer func() { // the machine knows the leases before it may be told of their loss
		for _, seat := range fx.Seats {
			o.chains.watch(f.leases[seat.Rank])
		}
	}()
	if f.near == "" {
		o.report(event{ev: formed, puts: f.puts})
		return
	}
	o.measuring.Lock()
	defer o.measuring.Unlock()
	for {
		err := o.formedNear(formed, f)
		if err == nil || o.b.desk.ctx.Err() != nil {
			return
		}
		o.b.cfg.Log.Error("the paths between members are not journalled; trying again", "job", o.s.trace.Job,
			"err", err)
		if pause(o.b.desk.ctx, journalRetry) != nil {
			return
		}
	}
}

// formedNear reports the leases of a cluster's gang, with the paths between its members. measuring is held.
func (o *orders) formedNear(formed jobs.GangFormed, f *forming) error {
	run := o.b.desk.ctx
	old, err := o.s.plans.pathsNow(run)
	if err != nil {
		return err
	}
	paths, put, err := f.putPaths(f.seats, old)
	if err != nil {
		return err
	}
	sum := record.SpanOf(paths)
	o.s.plans.setPaths(&paths) // before anybody is told of the new members; what is between the others is as it was
	ev := event{ev: formed, puts: append(slices.Clone(f.puts), put),
		amend: &amendment{change: func(j *Job) { j.Network = &sum }}}
	if _, err := o.ask(run, ev); err != nil {
		o.s.plans.setPaths(nil) // the journal has it
		return err
	}
	return nil
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
		if d.lease != nil && f.s.driver.chains.chain(d.lease.ID) != nil {
			out = append(out, factOf(d.lease))
		}
	}
	return out
}
