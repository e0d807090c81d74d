package buyer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
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
		var puts []store.Put
		if err == nil {
			puts, err = activated(fx, f)
		}
		o.s.mu.Lock()
		delete(o.gangs, fx.Gang)
		if err == nil {
			o.tries, o.thin, o.took = 0, 0, time.Since(began)
		}
		o.s.mu.Unlock()
		if err == nil {
			o.formed(fx, f, puts)
			return
		}
		if f != nil {
			o.count(f.Stray())
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
	var none *exchange.Unplaced
	switch {
	case errors.Is(err, jobs.ErrDropped) || ctx.Err() != nil:
		out.Why = jobs.GangDropped
	case errors.As(err, &none) && !none.Thin && !none.Raced && !none.Unsettled:
		out.Why = jobs.GangUnfit
	}
	return out
}

// form journals an order, publishes it, and takes all its leases or none. The result is not nil after an order of
// which leases were being taken.
func (o *orders) form(ctx context.Context, fx jobs.OrderGang) (*gangs.Gang, error) {
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
		valid = min(max(valid, time.Until(until)+gangs.Timeout), market.MaxOrderValidity-orderValidity)
	}
	order, env, err := o.s.compose(len(fx.Seats), slots, budget, choosy, thin, valid)
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
		return o.s.hire(ctx, order, env, fx.Seats)
	}
	f, err := o.s.take(ctx, order, env, fx.Seats, until)
	if none := (*exchange.Unplaced)(nil); errors.As(err, &none) && none.Thin {
		o.s.mu.Lock()
		o.thin++
		o.s.mu.Unlock()
	}
	return f, err
}

// count has the machine count and end leases of a gang that was not formed: each may cost its first interval.
func (o *orders) count(stray []*leases.Lease) {
	var facts []jobs.Lease
	for _, l := range stray {
		if o.chains.chain(l.ID) != nil {
			facts = append(facts, factOf(l))
		}
	}
	if len(facts) > 0 {
		o.post(jobs.GangFormed{Leases: facts})
	}
}

// activated returns the writes of the leases of a gang that has formed.
func activated(fx jobs.OrderGang, f *gangs.Gang) (puts []store.Put, err error) {
	for _, seat := range fx.Seats {
		p, err := f.Lease(seat.Rank).Put(func(r *leases.Record) { r.Active = true })
		if err != nil {
			return nil, err
		}
		puts = append(puts, p)
	}
	return puts, nil
}

// formed reports the leases of a gang, which are active.
func (o *orders) formed(fx jobs.OrderGang, f *gangs.Gang, puts []store.Put) {
	formed := jobs.GangFormed{Gang: fx.Gang}
	o.s.mu.Lock()
	for _, seat := range fx.Seats {
		l := f.Lease(seat.Rank)
		formed.Leases = append(formed.Leases, factOf(l))
		q := f.Quote(l.Core.Provider)
		o.offers[l.ID] = offered{q.Route, record.UnitsOf(q.Quote)}
	}
	o.s.mu.Unlock()
	defer func() { // the machine knows the leases before it may be told of their loss
		for _, seat := range fx.Seats {
			o.chains.watch(f.Lease(seat.Rank))
		}
	}()
	ev := event{ev: formed, puts: puts}
	if !f.Measured() {
		o.report(ev)
		return
	}
	o.measuring.Lock()
	defer o.measuring.Unlock()
	for {
		err := o.formedNear(ev, f)
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
func (o *orders) formedNear(ev event, f *gangs.Gang) error {
	run := o.b.desk.ctx
	old, err := o.s.plans.pathsNow(run)
	if err != nil {
		return err
	}
	paths := f.Paths(old)
	put, err := mesh.Records.Encode(o.s.trace.Job, paths)
	if err != nil {
		return err
	}
	sum := record.SpanOf(paths)
	o.s.plans.setPaths(&paths) // before anybody is told of the new members; what is between the others is as it was
	ev.puts = append(slices.Clone(ev.puts), put)
	ev.amend = &amendment{change: func(j *Job) { j.Network = &sum }}
	if _, err := o.ask(run, ev); err != nil {
		o.s.plans.setPaths(nil) // the journal has it
		return err
	}
	return nil
}
