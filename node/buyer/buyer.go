// Package buyer is the buying loop of a peer: it turns a submitted job into
// orders, takes leases for all its ranks or none, runs its rounds on them,
// co-signs receipts and issues vouchers, replaces what is lost, and pays.
//
// Which leases to take is decided by market/match and market/gang, what to sign
// by verify/meter's Payer and how to pay by chain's Settlement; this package
// carries out their effects, each journalled before anything that depends on it
// leaves the peer. After a crash, Run takes every job up where the journal has it.
package buyer

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/meter"
)

var (
	// ErrNoJob says that this peer has no such job, or that the beginning of an id fits several.
	ErrNoJob = errors.New("no such job")
	// ErrRefused says that a job cannot be taken; its text says why.
	ErrRefused = errors.New("job refused")
	// ErrFunds says that a job was refused because its wallet cannot pay for it.
	ErrFunds = errors.New("not enough funds")
	// ErrUnfinished says that the peer stopped before a job ended. The job goes on when the peer runs again.
	ErrUnfinished = errors.New("the peer stopped before the job ended; the job goes on when the peer runs again")
)

// Config is what a Buyer needs. All of it is required.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Owner   sign.Key // pays

	Ledger   chain.Ledger
	Settle   chain.Params
	Store    store.Store
	Blobs    work.Blobs
	Fetch    work.Fetcher
	Grant    func(to peer.ID, c cid.Cid)
	Runtimes map[string]runtime.Runtime // for the reduce step
	Slots    *slots.Clock
	Dir      string
	Log      *slog.Logger

	// Publish gossips an order and says how many neighbours take part in its topic.
	Publish func(ctx context.Context, o market.Order, envelope []byte) (int, error)
	// Find looks for offers of a class, at most so many.
	Find func(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error)

	Weights     match.Weights // zero means match.DefaultWeights
	QuoteWindow time.Duration // quotes for an order are waited for at the most so long
	LostAfter   time.Duration // a provider that is silent for so long is lost
	MaxOutput   int64         // bytes of one output
	MaxJobs     int           // jobs at a time, settling ones not counted
}

// Buyer buys for one peer. New starts nothing; Run does.
type Buyer struct {
	cfg    Config
	domain sign.Domain
	tag    string
	self   sign.Key
	known  *known
	settle *settle.Driver
	secret [32]byte // hold ids derive from it

	mu       sync.Mutex
	ctx      context.Context // of Run; nil before
	closing  bool            // Run ends: nothing new begins
	jobs     map[string]*supervisor
	keys     map[string]string // idempotency key → job id
	auctions map[market.OrderID]*auction
	leases   map[market.LeaseID]*bought
	wg       sync.WaitGroup
}

const (
	kindKey    = "jobkey" // idempotency key → job id
	kindSecret = "secret"
)

// New checks the configuration and reads what an earlier process left.
func New(ctx context.Context, cfg Config) (*Buyer, error) {
	if cfg.Weights == (match.Weights{}) {
		cfg.Weights = match.DefaultWeights(cfg.Genesis)
	}
	b := &Buyer{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(), known: newKnown(),
		jobs: map[string]*supervisor{}, keys: map[string]string{}, auctions: map[market.OrderID]*auction{},
		leases: map[market.LeaseID]*bought{},
	}
	b.settle = settle.New(settle.Config{Ledger: cfg.Ledger, Store: cfg.Store, Params: cfg.Settle, Log: cfg.Log, Settled: b.settled, Waiting: b.waiting})
	if err := b.loadSecret(ctx); err != nil {
		return nil, err
	}
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	return b, nil
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

// load reads the jobs and their leases.
func (b *Buyer) load(ctx context.Context) error {
	var jobs []Job
	if err := b.cfg.Store.List(ctx, kindJob, "", func(key string, value []byte) error {
		var j Job
		if err := json.Unmarshal(value, &j); err != nil {
			return fmt.Errorf("reading job %s: %w", key, err)
		}
		jobs = append(jobs, j)
		return nil
	}); err != nil {
		return err
	}
	if err := b.cfg.Store.List(ctx, kindKey, "", func(key string, value []byte) error {
		b.keys[key] = string(value)
		return nil
	}); err != nil {
		return err
	}
	for _, j := range jobs {
		t := newTrace(b.cfg.Store, j.ID)
		if j.State.Ended() {
			t.retire()
		} else if err := t.load(ctx); err != nil {
			return err
		}
		s, err := b.newSupervisor(j, t)
		if err != nil {
			return err
		}
		s.resumed = true
		b.jobs[j.ID] = s
	}
	return b.loadLeases(ctx)
}

// Run buys until ctx ends. Jobs that are not done go on in the next process.
func (b *Buyer) Run(ctx context.Context) error {
	quotes := protocol.Quote.Handle(b.cfg.Host, b.tag, b.handleQuote, stream.Limits{Logger: b.cfg.Log})
	metering := protocol.Meter.Handle(b.cfg.Host, b.tag, b.handleMeter, stream.Limits{PerPeer: 64, Logger: b.cfg.Log})
	b.mu.Lock()
	b.ctx = ctx
	open := slices.Collect(maps.Values(b.leases))
	b.mu.Unlock()
	for _, l := range open {
		if l.state() != meter.PayerSettled {
			l.watch(b)
		}
	}
	b.mu.Lock()
	for _, s := range b.jobs {
		if s.snapshot().State.Ended() {
			close(s.done)
		} else {
			b.wg.Go(func() { s.run(ctx) })
		}
	}
	b.mu.Unlock()
	<-ctx.Done()
	quotes.Close()
	metering.Close()
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		for _, l := range s.logs {
			l.end()
		}
	}
	return nil
}

func (b *Buyer) jobDir(id string) string { return filepath.Join(b.cfg.Dir, "jobs", id) }

// Submit journals a job and starts it. A key that was used before returns the
// job it was used for.
func (b *Buyer) Submit(ctx context.Context, spec job.Job, key string) (Job, error) {
	if err := b.check(ctx, spec); err != nil {
		return Job{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, ok := b.keys[key]; ok && key != "" {
		return b.jobs[id].snapshot(), nil
	}
	if b.ctx == nil || b.closing {
		return Job{}, fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	running := 0
	for _, s := range b.jobs {
		if st := s.snapshot().State; st != Settling && !st.Ended() { // one that only waits for the chain holds nothing
			running++
		}
	}
	if running >= b.cfg.MaxJobs {
		return Job{}, fmt.Errorf("%w: %d jobs run already, buy.maxJobs is %d", ErrRefused, running, b.cfg.MaxJobs)
	}
	j := Job{ID: newID(), Spec: spec, State: Queued, Created: time.Now(), Ranks: make([]Rank, spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = RankWaiting
	}
	if spec.Rounds != nil && spec.Rounds.Carry != "" {
		// Before the first round a program finds its carry directory empty, not absent.
		c, err := b.emptyTree(ctx)
		if err != nil {
			return Job{}, err
		}
		j.Carry = &c
	}
	t := newTrace(b.cfg.Store, j.ID)
	s, err := b.newSupervisor(j, t)
	if err != nil {
		return Job{}, err
	}
	var more []store.Put
	if key != "" {
		more = append(more, store.Put{Kind: kindKey, Key: key, Value: []byte(j.ID)})
	}
	if err := s.save(ctx, func(*Job) {}, more...); err != nil {
		return Job{}, err
	}
	b.jobs[j.ID] = s
	if key != "" {
		b.keys[key] = j.ID
	}
	b.cfg.Log.Info("job accepted", "job", j.ID, "name", spec.Name, "ranks", spec.Count)
	run := b.ctx
	b.wg.Go(func() { s.run(run) })
	return s.snapshot(), nil
}

// emptyTree stores the archive of an empty directory.
func (b *Buyer) emptyTree(ctx context.Context) (Blob, error) {
	dir, err := os.MkdirTemp(b.cfg.Dir, "empty-")
	if err != nil {
		return Blob{}, err
	}
	defer os.Remove(dir)
	c, n, err := b.cfg.Blobs.PutTree(ctx, dir)
	return Blob{CID: c.String(), Size: n, Tree: true}, err
}

// check refuses what cannot work before anything is journalled.
func (b *Buyer) check(ctx context.Context, spec job.Job) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, err := b.cfg.Slots.Now(time.Now()); err != nil {
		return fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again", ErrRefused, err)
	}
	if !spec.Uploaded() {
		return fmt.Errorf("%w: its files are not uploaded yet", ErrRefused)
	}
	for source, bl := range spec.Blobs {
		c, err := cid.Parse(bl.CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
		if !b.cfg.Blobs.Has(c) {
			return fmt.Errorf("%w: %s: its content %s is not on this peer; upload it first", ErrRefused, source, c)
		}
	}
	if err := b.checkModules(spec); err != nil {
		return err
	}
	if r := spec.Rounds; r != nil && r.Reduce != nil && b.cfg.Runtimes[spec.Runtime] == nil {
		return fmt.Errorf("%w: rounds.reduce runs on this peer, which has no runtime %q", ErrRefused, spec.Runtime)
	}
	need, err := b.mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	bctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// A chain that is down does not stop a job: it is paid when the chain is back.
	if have, err := b.cfg.Ledger.Balance(bctx, b.cfg.Owner); err == nil && have < need {
		return &fundsError{need: b.cfg.Genesis.FormatAmount(need), have: b.cfg.Genesis.FormatAmount(have), wallet: b.cfg.Owner}
	}
	return nil
}

func newID() string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails
	return "j" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw[:]))
}

// Jobs lists all jobs, newest first.
func (b *Buyer) Jobs() []Job {
	b.mu.Lock()
	all := make([]*supervisor, 0, len(b.jobs))
	for _, s := range b.jobs {
		all = append(all, s)
	}
	b.mu.Unlock()
	out := make([]Job, 0, len(all))
	for _, s := range all {
		out = append(out, s.snapshot())
	}
	slices.SortFunc(out, func(x, y Job) int { return y.Created.Compare(x.Created) })
	return out
}

// get finds a job by its id, a unique beginning of it, or its name if only one has it.
func (b *Buyer) get(id string) (*supervisor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.jobs[id]; s != nil {
		return s, nil
	}
	var found *supervisor
	for k, s := range b.jobs {
		if id != "" && strings.HasPrefix(k, id) {
			if found != nil {
				return nil, fmt.Errorf("%w: %q is the beginning of several", ErrNoJob, id)
			}
			found = s
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoJob, id)
	}
	return found, nil
}

// Job returns one job.
func (b *Buyer) Job(id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	return s.snapshot(), nil
}

// Stop ends a job's work; what it owes is still paid. Stopping what has ended is no error.
func (b *Buyer) Stop(ctx context.Context, id string) error {
	s, err := b.get(id)
	if err != nil {
		return err
	}
	if st := s.snapshot().State; st == Settling || st.Ended() {
		return nil
	}
	if err := s.save(ctx, func(j *Job) { j.Stopping = true }); err != nil {
		return err
	}
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop(errStopped)
	}
	return nil
}

// Trace returns the steps of a job from after on, and a channel that closes when there are more.
func (b *Buyer) Trace(id string, after int) ([]Step, <-chan struct{}, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, nil, err
	}
	return s.trace.after(after)
}

// Log copies the log of one rank, in frames, to w; with follow, until the job has ended.
func (b *Buyer) Log(ctx context.Context, id string, rank int, follow bool, w io.Writer) error {
	s, err := b.get(id)
	if err != nil {
		return err
	}
	if rank < 0 || rank >= len(s.logs) {
		return fmt.Errorf("%w: job %s has ranks 0 to %d, not %d", ErrNoJob, s.snapshot().ID, len(s.logs)-1, rank)
	}
	return s.logs[rank].copy(ctx, w, 0, follow)
}

// Wait returns the job when it has ended, or ErrUnfinished when the peer stops before.
func (b *Buyer) Wait(ctx context.Context, id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	select {
	case <-ctx.Done():
		return s.snapshot(), ctx.Err()
	case <-s.done:
		j := s.snapshot()
		if !j.State.Ended() {
			return j, ErrUnfinished
		}
		return j, nil
	}
}

// checkModules refuses programs that no provider could run, where this peer can tell.
func (b *Buyer) checkModules(spec job.Job) error {
	c, ok := b.cfg.Runtimes[spec.Runtime].(runtime.Checker)
	if !ok {
		return nil
	}
	modules := []string{spec.Module}
	if r := spec.Rounds; r != nil && r.Reduce != nil {
		modules = append(modules, r.Reduce.Module)
	}
	for _, source := range modules {
		id, err := cid.Parse(spec.Blobs[source].CID)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
		path, err := b.cfg.Blobs.Path(id)
		if err == nil {
			err = c.CheckModule(path)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRefused, source, err)
		}
	}
	return nil
}
