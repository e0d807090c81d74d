// Package buyer is the buying loop of a peer: it turns a submitted job into orders, and takes leases for all its ranks
// or none. It runs the job's rounds on them, co-signs receipts, issues vouchers, and replaces lost ranks.
//
// The decisions are in pure packages: leases in market/match and market/gang, signatures in verify/meter's Payer,
// payments in chain's Settlement. This package carries out their effects. Each effect is journalled before any message
// depends on it. After a crash, Run resumes every job from the journal.
//
// What happens to a job is decided by its machine, node/buyer/jobs. Package run journals each step and holds this
// peer's record of the job. The rooms of a job carry out the effects. A supervisor composes them:
//
//	orders     order leases for its ranks: exchange is the market, selection chooses among the quotes, and gangs takes
//	           all leases of an order or none
//	programs   starts, follows and ends their programs, by executions; probe checks whether units are shared
//	lines      extends leases, and ends them; leases has them from their signatures to their settlement
//	plans      sends the members of a cluster its plan; mesh measures the paths between them
//	access     connects users to the programs
//	changes    gives the job more time, another budget or another size
//	settling   settles its account; pay has the money behind the leases, spend the limits on it
//	command    engages the guardians of a job, and sends them heartbeats; guardian/search finds them
//	takeover   gets the command of such a job after an absence, or for its owner
//	voice      signs for it: as the peer, or in the name of a job with guardians
//
// Beside them admission refuses invalid jobs. record has the journalled form of a job, archive the jobs that ended long
// ago, secrets their secret values, and news the reports to their webhooks. results has results computed again, by
// checks, and reduce reduces them.
package buyer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/access"
	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/news"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/plans"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/results"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/secrets"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/voice"
)

// ErrUnfinished is returned if the peer stopped before a job ended. The job continues when the peer runs again.
var ErrUnfinished = errors.New("the peer stopped before the job ended; the job continues when the peer runs again")

// Buyer buys for one peer. New starts nothing; Run does.
type Buyer struct {
	*spend.Ledger // API keys and limits
	*access.Door  // to the programs of jobs
	catalogue
	plans.Reader // of the paths of clusters

	cfg      Config
	domain   sign.Domain
	tag      string
	exchange *exchange.Exchange
	own      *voice.Own
	leases   *leases.Book
	// executions reaches running programs.
	executions *executions.Client
	pay        pay.Service
	runner     *run.Runner // of the jobs
	rooms      rooms
	news       *news.News
	checks     *results.Checker
	secrets    *secrets.Keeper

	// Under the catalogue's mu:
	ctx     context.Context           // of Run; nil before
	closing bool                      // Run ends: nothing new begins
	drafted map[market.HoldID]promise // leases being signed
	taking  map[string]Job            // new jobs that are not among the jobs yet
	raises  map[string]market.Amount  // by job: the most that it can cost after a change being journalled
	submits singleflight.Group        // by idempotency key
	takeUp  chan struct{}             // holds one while a guarded job is taken up
	wg      sync.WaitGroup

	ended    chan struct{} // holds one when a job has ended
	removals chan *removal // to tidying
}

// New checks the configuration and restores the journalled jobs.
func New(ctx context.Context, cfg Config) (*Buyer, error) {
	cfg.Weights = exchange.WeightsFor(cfg.Genesis, cfg.Weights)
	b := &Buyer{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(),
		catalogue: catalogue{self: cfg.Key.Key(), files: cfg.Files, log: cfg.Log, jobs: map[string]*supervisor{}},
		drafted:   map[market.HoldID]promise{}, taking: map[string]Job{}, raises: map[string]market.Amount{},
		takeUp: make(chan struct{}, 1), ended: make(chan struct{}, 1), removals: make(chan *removal),
	}
	b.leases = leases.New(leases.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Store: cfg.Store, Clock: cfg.Slots, Observer: keeping{b}, Tasks: &b.wg,
		Log: cfg.Log,
	})
	b.executions = executions.New(executions.Config{
		Host: cfg.Host, Tag: b.tag, Fetch: cfg.Files.Fetch, LostAfter: cfg.LostAfter, MaxOutput: cfg.MaxOutput,
	})
	var fundTime time.Duration
	var err error
	if b.own, err = voice.NewOwn(cfg.Genesis, cfg.Key); err != nil {
		return nil, err
	}
	if b.pay = (pay.Free{}); cfg.Escrows != nil {
		b.pay, err = pay.New(ctx, pay.Config{
			Escrows: *cfg.Escrows, Genesis: cfg.Genesis, Self: b.self, Owner: cfg.Owner, Store: cfg.Store,
			Jobs: paying{b}, Leases: paying{b}, Log: cfg.Log,
		})
		if err != nil {
			return nil, err
		}
		fundTime = pay.FundTime
	}
	if b.news, err = news.Open(ctx, news.Config{
		Genesis: cfg.Genesis, Self: b.self, Store: cfg.Store, Private: cfg.PrivateHook, Secrets: hooks{b}, Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	if b.checks, err = results.Open(ctx, results.Config{
		Genesis: cfg.Genesis, Store: cfg.Store, Clock: cfg.Slots, Blocks: cfg.Blocks, Stakes: cfg.Stakes,
		Disputes: cfg.Disputes, Self: b.self, Owner: cfg.Owner, Leases: b.leases, Jobs: b, Reputation: cfg.Reputation,
		Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	if b.secrets, err = secrets.Open(ctx, cfg.Store, cfg.Boxes, b.self); err != nil {
		return nil, err
	}
	b.exchange = exchange.New(exchange.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Self: b.self, Secret: b.secrets.Seed(), Network: cfg.Market,
		Ratings: cfg.Reputation, Proofs: cfg.Proofs, Blocked: cfg.Blocked, Weights: cfg.Weights,
		Window: cfg.QuoteWindow, MaxAsked: cfg.MaxAsked,
		Log: cfg.Log,
	})
	if b.Ledger, err = spend.Load(ctx, cfg.Store, cfg.Genesis, cfg.Limits, spending{b}); err != nil {
		return nil, err
	}
	b.furnish(fundTime)
	b.Door, b.Reader = access.NewDoor(doors{b}, b.executions), plans.NewReader(cfg.Store)
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	all := make([]*run.Job, 0, len(b.jobs))
	for _, s := range b.jobs {
		all = append(all, s.Job)
	}
	return b, b.runner.Restore(ctx, all)
}

// load reads the jobs and their leases. Of an archived job it reads the entry alone.
func (b *Buyer) load(ctx context.Context) error {
	var err error
	if b.archive, err = archive.Open(ctx, b.cfg.Store); err != nil {
		return err
	}
	var all []record.Record
	if err := record.Records.List(ctx, b.cfg.Store, "", func(_ string, rec record.Record) error {
		all = append(all, rec)
		return nil
	}); err != nil {
		return fmt.Errorf("reading jobs: %w", err)
	}
	for _, rec := range all {
		j := rec.Job
		s, err := b.newSupervisor(j)
		if err != nil {
			return err
		}
		if j.State.Ended() {
			s.Trace.Retire()
		} else if err := s.Trace.Load(ctx); err != nil {
			return err
		}
		if !j.State.Ended() {
			if err := s.Load(rec.Work); err != nil {
				return fmt.Errorf("reading job %s: %w", j.ID, err)
			}
		}
		b.jobs[j.ID] = s
	}
	return b.loadLeases(ctx)
}

// Run buys until ctx ends. Jobs that are not done go on in the next process.
func (b *Buyer) Run(ctx context.Context) error {
	defer b.exchange.Start(ctx)()
	b.wg.Go(func() { b.news.Run(ctx) })
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
	stop := b.leases.Start(ctx)
	b.wg.Go(func() { b.pay.Run(ctx) }) // it reports on leases, which end with b.ctx
	for _, l := range b.leases.All() {
		// Those of a job with guardians are taken up once it is certain that this peer supervises it.
		if s, err := b.get(l.Job); !l.Done() && err == nil &&
			(s.command == nil || s.Mine && s.Snapshot().State == Settling) {
			b.leases.Watch(l)
		}
	}
	var begun []string // own jobs of an earlier process
	b.mu.Lock()
	for _, s := range b.jobs {
		switch j := s.Snapshot(); {
		case j.State.Ended():
			s.EndLogs()
			s.Close()
		case s.Mine: // the guardian service decides which other jobs to resume
			begun = append(begun, j.ID)
		}
	}
	b.mu.Unlock()
	for _, id := range begun {
		b.pay.Forsake(id)
	}
	b.mu.Lock()
	b.runner.Start(ctx)
	b.mu.Unlock()
	b.wg.Go(func() { b.runner.Run() })
	b.wg.Go(func() { retiring{b}.tidying(ctx) })
	<-ctx.Done()
	stop()
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.wg.Wait()
	for _, s := range b.supervisors() {
		s.EndLogs()
		if s.command != nil {
			s.command.Voice().Close()
		}
	}
	return nil
}

// Exchange returns the buyer's door to the market.
func (b *Buyer) Exchange() *exchange.Exchange { return b.exchange }

// Job returns one job.
func (b *Buyer) Job(id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	return s.shown(), nil
}

// shown returns the job with the state of its money, and the guardians that keep its checkpoints.
func (s *supervisor) shown() Job {
	j := s.command.Voice().Shown(s.Snapshot())
	if escrows := s.b.pay.Escrows(j.ID); len(escrows) > 0 { // a past job brings its own from the journal
		j.Escrows = escrows
	}
	return withMoney(j)
}

// withMoney returns a job with the sums over its escrows, and without the box of its key.
func withMoney(j Job) Job {
	if len(j.Escrows) > 0 {
		j.Paid, j.Held = pay.Claimed(j.Escrows)
		j.Lamports = took(j)
	}
	if d := j.Detached; d != nil {
		d.Box = nil
	}
	return j
}

// Stop ends a job's work; its debts are still paid. Stopping an ended job is no error.
func (b *Buyer) Stop(ctx context.Context, id string) error {
	s, err := b.get(id)
	if err != nil {
		return err
	}
	if st := s.Snapshot().State; st == Settling || st.Ended() {
		return nil
	}
	_, err = s.Ask(ctx, run.Event{Ev: jobs.StopRequested{}})
	return err
}

// Trace returns the steps of a job from after on, and a channel that closes when there are more.
func (b *Buyer) Trace(id string, after int) ([]Step, <-chan struct{}, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, nil, err
	}
	return s.Trace.After(after)
}

// Log copies the part of one rank's log that q selects, in frames, to w; with Follow, until the job has ended.
func (b *Buyer) Log(ctx context.Context, id string, rank int, q LogQuery, w io.Writer) error {
	s, err := b.get(id)
	if err != nil {
		return err
	}
	logs := s.Logs()
	if rank < 0 || rank >= len(logs) {
		return fmt.Errorf("%w: job %s has ranks 0 to %d, not %d", ErrNoJob, s.Snapshot().ID, len(logs)-1, rank)
	}
	return logs[rank].Copy(ctx, w, q)
}

// Wait returns the job when it has ended, or ErrUnfinished when the peer stops before.
func (b *Buyer) Wait(ctx context.Context, id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	select {
	case <-ctx.Done():
		return s.shown(), ctx.Err()
	case <-s.Done():
		j := s.shown()
		if !j.State.Ended() {
			return j, ErrUnfinished
		}
		return j, nil
	}
}

// get finds a job by its id or a unique beginning of it. An archived one is read from the journal.
func (b *Buyer) get(id string) (*supervisor, error) {
	s, id, err := b.lookUp(id)
	if s == nil && err == nil {
		return retiring{b}.recall(id)
	}
	return s, err
}

// loadLeases reads the leases of the jobs that were read.
func (b *Buyer) loadLeases(ctx context.Context) error {
	paid, err := b.leases.Load(ctx, func(job string) (leases.Principal, error) {
		if s := b.jobs[job]; s != nil {
			return s.As(), nil
		}
		return nil, fmt.Errorf("job %s is not in the journal", job)
	})
	for _, l := range paid {
		b.jobs[l.Job].Hold(l)
	}
	return err
}

// Reconnect opens a connection to the provider of every lease that is not settled.
func (b *Buyer) Reconnect(ctx context.Context) { b.leases.Reconnect(ctx) }
