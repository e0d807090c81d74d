// Package buyer is the buying loop of a peer: it turns a submitted job into
// orders, takes leases for all its ranks or none, runs its rounds on them,
// co-signs receipts and issues vouchers, replaces lost ranks, and pays.
//
// Which leases to take is decided by market/match and market/gang, what to sign
// by verify/meter's Payer and how to pay by chain's Settlement; this package
// carries out their effects, each journalled before anything that depends on it
// leaves the peer. After a crash, Run takes every job up where the journal has it.
//
// Package leases has the leases, from their signatures to their settlement; package executions reaches the programs on
// them; package trust has the record of providers whose results were checked.
//
// What happens to a job is decided by its machine, node/buyer/jobs; a driver carries out the effects, with the job's
// orders, executions and chains of leases. The command of a job with guardians supervises it: it engages them, gets the
// command back after an absence, and sends them heartbeats with the standing that the next supervisor goes on from.
package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/trust"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

var (
	// ErrNoJob says that this peer has no such job, or that the beginning of an id fits several.
	ErrNoJob = errors.New("no such job")
	// ErrUnfinished says that the peer stopped before a job ended. The job goes on when the peer runs again.
	ErrUnfinished = errors.New("the peer stopped before the job ended; the job goes on when the peer runs again")
)

// Config has the settings and services of a Buyer. All are required.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Owner   sign.Key // pays

	Escrows *Escrows // nil on a free network
	Store   store.Store
	Blobs   work.Blobs
	Fetch   work.Fetcher
	Grant   func(to peer.ID, c cid.Cid)
	// Uploaded reports whether an API key uploaded a blob; nil: none did.
	Uploaded func(key string, c cid.Cid) bool
	Runtimes map[string]runtime.Runtime // for the reduce step
	Slots    probe.Clock
	Dir      string
	Log      *slog.Logger

	Market     exchange.Network // as this peer reaches it
	Registries runtime.Registries

	// Filed is told of each receipt that both have signed, under its lease; it may come again. It must not wait.
	Filed func(l market.Lease, units []market.UnitID, r verify.Receipt)

	// Carries is how many bytes a connection to any provider carries before a relay cuts it; 0: no limit is known. Nil
	// where connections differ.
	Carries func() int64

	// Reputation is this peer's record of others.
	Reputation Reputation
	// Proofs has the proven properties of units on offer; nil on a network without audits, and if this peer cannot
	// check them.
	Proofs Proofs

	Boxes Boxes
	// Blocked reports whether a provider is not wanted, and why.
	Blocked func(p sign.Key) (reason string, blocked bool)

	// Guardian is this peer's own guardian service, which is asked directly; nil: it guards nothing.
	Guardian guardian.Local
	// Peers are peers that this one knows of beside those that sell, and where they may be reached.
	Peers func() []peer.AddrInfo
	// Stake returns a peer's stake; nil: stakes are not known.
	Stake func(ctx context.Context, peer sign.Key) (market.Amount, error)

	// Blocks tells the hashes by which is drawn whose results are checked; nil: no job's can be.
	Blocks chain.Blocks
	// Bond returns a provider's wallet and its stake there; zero: none. Nil: nobody has a stake.
	Bond func(ctx context.Context, provider sign.Key) (owner sign.Key, stake market.Amount, err error)
	// Dissent journals a proof that providers signed different results, once, and returns its id.
	Dissent func(ctx context.Context, d replica.Dissent) (string, error)

	Limits      Limits        // on the spending of all keys together
	PrivateHook bool          // webhooks may be at addresses that are not public
	Weights     match.Weights // zero means match.DefaultWeights
	QuoteWindow time.Duration // quotes for an order are waited for at the most so long
	LostAfter   time.Duration // a provider that is silent for so long is lost
	MaxOutput   int64         // bytes of one output
	MaxJobs     int           // jobs at a time, settling ones not counted
	MaxAsked    int           // known providers asked at once for an order, beside 3 for each lease wanted; zero means 48
}

// Reputation has the reputation of other peers; node/reputation implements it.
type Reputation interface {
	exchange.Ratings
	probe.Facts
	// Failed reports that the provider of a lease broke it, and the loss. The report may repeat.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Buyer buys for one peer. New starts nothing; Run does.
type Buyer struct {
	*spend.Ledger // API keys and limits

	cfg    Config
	domain sign.Domain
	tag    string
	self   sign.Key
	// exchange is the market.
	exchange *exchange.Exchange
	own      *own
	leases   *leases.Book
	// executions reaches running programs.
	executions *executions.Client
	pay        payments
	desk       *desk // runs the jobs
	// fundTime is how long pay may take to set money aside.
	fundTime time.Duration
	hooks    *webhook.Queue
	trust    *trust.Book
	archive  *archive.Archive
	secret   [32]byte // hold ids derive from it

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	closing bool            // Run ends: nothing new begins
	jobs    map[string]*supervisor
	drafted map[market.HoldID]promise // leases being signed
	forming map[market.OrderID]int    // who takes leases of it
	wg      sync.WaitGroup

	ended    chan struct{} // holds one when a job has ended
	removals chan *removal // to tidying
}

const (
	kindKey    = "jobkey" // idempotency key → job id
	kindSecret = "secret"
)

// New checks the configuration and restores the journalled jobs.
func New(ctx context.Context, cfg Config) (*Buyer, error) {
	if cfg.Weights == (match.Weights{}) {
		cfg.Weights = match.DefaultWeights(cfg.Genesis)
	}
	cfg.Weights.Audited = cfg.Genesis.AuditSlots > 0
	b := &Buyer{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(),
		jobs: map[string]*supervisor{}, drafted: map[market.HoldID]promise{}, forming: map[market.OrderID]int{},
		ended: make(chan struct{}, 1), removals: make(chan *removal),
	}
	b.leases = leases.New(leases.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Store: cfg.Store, Clock: cfg.Slots, Observer: keeping{b}, Tasks: &b.wg, Log: cfg.Log,
	})
	b.executions = executions.New(executions.Config{
		Host: cfg.Host, Tag: b.tag, Fetch: cfg.Fetch, LostAfter: cfg.LostAfter, MaxOutput: cfg.MaxOutput,
	})
	var err error
	if b.own, err = newOwn(b); err != nil {
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
		b.fundTime = pay.FundTime
	}
	if b.hooks, err = webhook.Open(ctx, webhook.Config{Store: cfg.Store, Private: cfg.PrivateHook, Secret: b.hookSecret, Log: cfg.Log}); err != nil {
		return nil, err
	}
	if b.trust, err = trust.Load(ctx, cfg.Store); err != nil {
		return nil, err
	}
	if err := b.loadSecret(ctx); err != nil {
		return nil, err
	}
	b.exchange = exchange.New(exchange.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Self: b.self, Secret: b.secret, Network: cfg.Market, Ratings: cfg.Reputation,
		Proofs: cfg.Proofs, Blocked: cfg.Blocked, Weights: cfg.Weights, Window: cfg.QuoteWindow, MaxAsked: cfg.MaxAsked,
		Log: cfg.Log,
	})
	if b.Ledger, err = spend.Load(ctx, cfg.Store, cfg.Genesis, cfg.Limits, spending{b}); err != nil {
		return nil, err
	}
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	b.desk, err = newDesk(ctx, b)
	return b, err
}

func (b *Buyer) loadSecret(ctx context.Context) error {
	v, err := b.cfg.Store.Get(ctx, kindSecret, "hold")
	switch {
	case err == nil && len(v) == len(b.secret):
		copy(b.secret[:], v)
		return nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("reading the buyer's secret: %w", err)
	}
	if _, err := rand.Read(b.secret[:]); err != nil {
		return err
	}
	return b.cfg.Store.Write(ctx, store.Put{Kind: kindSecret, Key: "hold", Value: b.secret[:]})
}

// load reads the jobs and their leases. Of an archived job it reads the entry alone.
func (b *Buyer) load(ctx context.Context) error {
	var err error
	if b.archive, err = archive.Open(ctx, b.cfg.Store); err != nil {
		return err
	}
	var all []jobRecord
	if err := jobTable.List(ctx, b.cfg.Store, "", func(_ string, rec jobRecord) error {
		all = append(all, rec)
		return nil
	}); err != nil {
		return fmt.Errorf("reading jobs: %w", err)
	}
	for _, rec := range all {
		j := rec.Job
		t := trace.New(b.cfg.Store, j.ID)
		if j.State.Ended() {
			t.Retire()
		} else if err := t.Load(ctx); err != nil {
			return err
		}
		s, err := b.newSupervisor(j, t)
		if err != nil {
			return err
		}
		if s.resumed = true; !j.State.Ended() {
			if err := s.driver.load(rec.Work); err != nil {
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
	b.wg.Go(func() { b.hooks.Run(ctx) })
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
	stop := b.leases.Start(ctx)
	b.wg.Go(func() { b.pay.Run(ctx) }) // it tells of leases, which end with b.ctx
	for _, l := range b.leases.All() {
		// Those of a job with guardians are taken up once it is certain that this peer supervises it.
		if s, err := b.get(l.Job); !l.Done() && err == nil && (s.guard == nil || s.mine && s.snapshot().State == Settling) {
			b.leases.Watch(l)
		}
	}
	var begun []string // own jobs of an earlier process
	b.mu.Lock()
	for _, s := range b.jobs {
		switch j := s.snapshot(); {
		case j.State.Ended():
			for _, l := range s.ranklogs() {
				l.End()
			}
			s.close()
		case s.mine: // of others the guardian service says what is to be gone on with
			begun = append(begun, j.ID)
		}
	}
	b.mu.Unlock()
	for _, id := range begun {
		b.pay.Forsake(id)
	}
	b.mu.Lock()
	b.desk.ctx = ctx
	b.mu.Unlock()
	b.wg.Go(func() { b.desk.run(ctx) })
	b.wg.Go(func() { b.tidying(ctx) })
	<-ctx.Done()
	stop()
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		for _, l := range s.ranklogs() {
			l.End()
		}
		if s.guard != nil {
			s.guard.close()
		}
	}
	return nil
}

func (b *Buyer) jobDir(id string) string { return filepath.Join(b.cfg.Dir, "jobs", id) }

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

// shown returns the job with the state of its money.
func (s *supervisor) shown() Job {
	j := s.snapshot()
	if escrows := s.b.pay.Escrows(j.ID); len(escrows) > 0 { // a past job brings its own from the journal
		j.Escrows = escrows
	}
	return j.shown()
}

func (j Job) shown() Job {
	if len(j.Escrows) > 0 {
		j.Paid, j.Held = pay.Claimed(j.Escrows)
		j.Lamports = j.took()
	}
	if d := j.Detached; d != nil { // nobody can open them who looks at it
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
	if st := s.snapshot().State; st == Settling || st.Ended() {
		return nil
	}
	_, err = s.driver.ask(ctx, event{ev: jobs.StopRequested{}})
	return err
}

// Trace returns the steps of a job from after on, and a channel that closes when there are more.
func (b *Buyer) Trace(id string, after int) ([]Step, <-chan struct{}, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, nil, err
	}
	return s.trace.After(after)
}

// Log copies the part of one rank's log that q selects, in frames, to w; with Follow, until the job has ended.
func (b *Buyer) Log(ctx context.Context, id string, rank int, q LogQuery, w io.Writer) error {
	s, err := b.get(id)
	if err != nil {
		return err
	}
	logs := s.ranklogs()
	if rank < 0 || rank >= len(logs) {
		return fmt.Errorf("%w: job %s has ranks 0 to %d, not %d", ErrNoJob, s.snapshot().ID, len(logs)-1, rank)
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
	case <-s.done:
		j := s.shown()
		if !j.State.Ended() {
			return j, ErrUnfinished
		}
		return j, nil
	}
}
