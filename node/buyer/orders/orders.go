// Package orders orders leases for the ranks of a job: all of an order or none.
//
// An order is written, journalled, and published on the market. Among the quotes that come back a provider is chosen
// for each rank, and a gang takes their leases. A job with guardians is completed from its standbys instead, by the
// quotes that its first order brought. A quotation is an order for which nothing is reserved.
package orders

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/selection"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of the orders of all jobs. All of it is required.
type Config struct {
	Host     *p2p.Host
	Genesis  market.Genesis
	Key      sign.Signer
	Store    store.Store
	Clock    run.Clock
	Secret   [32]byte // the peer's own
	Weights  exchange.Weights
	FundTime time.Duration // to set money aside
	Exchange *exchange.Exchange
	Leases   *leases.Book
	Wallet   Wallet
	Money    gangs.Money
	Limits   selection.Limits
	Replicas selection.Replicas
	Tasks    leases.Tasks
	Log      *slog.Logger
}

// Office writes the orders of a peer.
type Office struct {
	Config
	selector *selection.Selector // chooses among quotes
	former   *gangs.Former       // takes the leases of an order
}

// Open returns the office of a peer.
func Open(cfg Config) *Office {
	return &Office{
		Config: cfg,
		selector: selection.New(selection.Config{
			Host: cfg.Host, Genesis: cfg.Genesis, Weights: cfg.Weights, Exchange: cfg.Exchange, Limits: cfg.Limits,
			Replicas: cfg.Replicas,
		}),
		former: gangs.New(gangs.Config{
			Host: cfg.Host, Genesis: cfg.Genesis, Secret: cfg.Secret, FundTime: cfg.FundTime, Clock: cfg.Clock,
			Market: cfg.Exchange, Leases: cfg.Leases, Money: cfg.Money, Tasks: cfg.Tasks, Log: cfg.Log,
		}),
	}
}

// Carried returns a warning if the files of a job hardly get over a relay that carries so many bytes, and reports
// whether they do not.
func Carried(spec job.Job, bytes int64) (warning string, refused bool) {
	return exchange.OverRelay(selection.Brought(spec), bytes)
}

// Wallet is the money that pays for jobs.
type Wallet interface {
	// Account returns the account that orders name beside the peer's own, or zero if there is no other.
	Account() sign.Key
	// Afford returns an error if the wallet cannot pay for a job that can cost so much and takes so many leases at a
	// time. The job is empty for a new one.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// Lamports estimates the SOL for a job of so many ranks, with so much set aside.
	Lamports(ranks uint32, stake market.Amount) record.Lamports
}

// Paths are the measured paths between the members of a cluster.
type Paths interface {
	// Formed reports the leases of a gang of members with the paths between them.
	Formed(ev run.Event, g *gangs.Gang)
}

// Orders are the orders of leases for a job.
type Orders struct {
	*run.Job
	cfg   *Office
	paths Paths

	mu    sync.Mutex
	gangs map[jobs.GangID]context.CancelFunc
	tries int // orders since one was filled
	thin  int // of these, those for which too few providers were to quote
}

// Of returns the orders of a job. Paths are those of its cluster.
func (c *Office) Of(j *run.Job, paths Paths) *Orders {
	return &Orders{Job: j, cfg: c, paths: paths, gangs: map[jobs.GangID]context.CancelFunc{}}
}

// Place orders leases for ranks of the job. The machine gets exactly one answer.
func (s *Orders) Place(fx jobs.OrderGang) {
	ctx, cancel := context.WithCancel(s.Context())
	s.mu.Lock()
	s.gangs[fx.Gang] = cancel
	s.mu.Unlock()
	s.cfg.Tasks.Go(func() {
		defer cancel()
		began := time.Now()
		f, err := s.form(ctx, fx)
		took := time.Since(began)
		var puts []store.Put
		if err == nil {
			puts, err = activated(fx, f)
		}
		s.mu.Lock()
		delete(s.gangs, fx.Gang)
		if err == nil {
			s.tries, s.thin = 0, 0
		}
		s.mu.Unlock()
		if err == nil {
			s.formed(fx, f, puts, took)
			return
		}
		if f != nil {
			s.count(f.Stray())
		}
		s.Post(failureOf(ctx, fx.Gang, err))
		if errors.Is(err, pay.ErrNoPlace) {
			s.Post(jobs.PeerFailed{Code: jobs.CodePeer, Reason: pay.ErrNoPlace.Error()})
		}
	})
}

// Cancel ends a gang early.
func (s *Orders) Cancel(fx jobs.CancelGang) {
	s.mu.Lock()
	cancel := s.gangs[fx.Gang]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// failureOf returns the failure of a gang.
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
func (s *Orders) form(ctx context.Context, fx jobs.OrderGang) (*gangs.Gang, error) {
	s.mu.Lock()
	choosy, thin := s.tries == 0, s.thin
	s.tries++
	s.mu.Unlock()
	slots, budget := fx.Slots, fx.Cap
	if fx.Standby {
		var err error
		if slots, err = s.standbySlots(slots); err != nil {
			return nil, err
		}
		choosy, thin, budget = false, 0, 0
	}
	valid, until := orderValidity, fx.Until
	switch {
	case fx.Standby: // its quotes are there
	case choosy && len(s.Snapshot().Lost) > 0:
		until = time.Time{} // the next order takes providers that lost a rank, too
	default:
		valid = min(max(valid, time.Until(until)+gangs.Timeout), market.MaxOrderValidity-orderValidity)
	}
	order, env, err := s.compose(len(fx.Seats), slots, budget, choosy, thin, valid)
	if err != nil {
		return nil, err
	}
	note := func(j *record.Job) { j.Orders = append(slices.Clip(j.Orders), order.ID) }
	if _, err := s.Ask(ctx, run.Event{
		Ev:    jobs.OrderPlaced{Gang: fx.Gang, Order: order.ID},
		Puts:  []store.Put{record.Orders.Encode(order.ID.String(), env)},
		Amend: run.Amend(note),
	}); err != nil {
		return nil, err
	}
	if fx.Standby {
		return s.hire(ctx, order, env, fx.Seats)
	}
	f, err := s.take(ctx, order, env, fx.Seats, until)
	if none := (*exchange.Unplaced)(nil); errors.As(err, &none) && none.Thin {
		s.mu.Lock()
		s.thin++
		s.mu.Unlock()
	}
	return f, err
}

// count has the machine count and end leases of a gang that was not formed: each may cost its first interval.
func (s *Orders) count(stray []*leases.Lease) {
	var facts []jobs.Lease
	for _, l := range stray {
		if s.Chain(l.ID) != nil {
			facts = append(facts, run.FactOf(l))
		}
	}
	if len(facts) > 0 {
		s.Post(jobs.GangFormed{Leases: facts})
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
func (s *Orders) formed(fx jobs.OrderGang, f *gangs.Gang, puts []store.Put, took time.Duration) {
	formed := jobs.GangFormed{Gang: fx.Gang}
	offers := map[market.LeaseID]run.Offered{}
	for _, seat := range fx.Seats {
		l := f.Lease(seat.Rank)
		formed.Leases = append(formed.Leases, run.FactOf(l))
		q := f.Quote(l.Core.Provider)
		offers[l.ID] = run.Offered{Route: q.Route, Units: record.UnitsOf(q.Quote)}
	}
	s.Filled(offers, took)
	defer func() { // the machine knows the leases before it may be told of their loss
		for _, seat := range fx.Seats {
			s.Watch(f.Lease(seat.Rank))
		}
	}()
	ev := run.Event{Ev: formed, Puts: puts}
	if !f.Measured() {
		s.Report(ev)
		return
	}
	s.paths.Formed(ev, f)
}
