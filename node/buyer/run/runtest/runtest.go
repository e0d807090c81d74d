// Package runtest has jobs for tests of the rooms that carry out their effects.
package runtest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Genesis is the network of the jobs. It is free.
var Genesis = market.Genesis{
	Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Free: true,
}

// Self is the key of the peer.
var Self = sign.NewPrivate([32]byte{1})

// Provider returns the key of the i-th provider.
func Provider(i int) sign.Private { return sign.NewPrivate([32]byte{byte(100 + i)}) }

// World is the peer around jobs. Its methods fail the test on errors.
type World struct {
	T      testing.TB
	Store  store.Store
	Host   *p2p.Host
	Runner *run.Runner
	Book   *leases.Book
	Tasks  sync.WaitGroup

	mu      sync.Mutex
	slot    market.Slot
	reports []record.State
}

// New returns a world. Its runner does not run yet.
func New(t testing.TB, st store.Store) *World {
	w := &World{T: t, Store: st, slot: 1000, Host: p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)})}
	w.Runner = run.New(run.Config{
		Genesis: Genesis, Store: st, Clock: w, News: w, Dir: t.TempDir(), Log: p2ptest.Quiet(),
	})
	w.Book = leases.New(leases.Config{
		Host: w.Host, Genesis: Genesis, Store: st, Clock: w, Observer: w, Tasks: &w.Tasks, Log: p2ptest.Quiet(),
	})
	return w
}

// Now implements run.Clock.
func (w *World) Now(time.Time) (market.Slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slot, nil
}

// Of implements run.News. It notes the state, and returns one record.
func (w *World) Of(j record.Job) ([]webhook.Delivery, []store.Put) {
	put := store.Put{Kind: "news", Key: string(j.State), Value: []byte("{}")}
	return []webhook.Delivery{{Event: string(j.State)}}, []store.Put{put}
}

// Added implements run.News.
func (w *World) Added(reports ...webhook.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range reports {
		w.reports = append(w.reports, record.State(r.Event))
	}
}

// Reports returns the states that were reported.
func (w *World) Reports() []record.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]record.State(nil), w.reports...)
}

// Filed implements leases.Observer.
func (w *World) Filed(market.Lease, []market.UnitID, verify.Receipt) {}

// Settled implements leases.Observer.
func (w *World) Settled(*leases.Lease) {}

// Run runs the jobs until the test ends.
func (w *World) Run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.Runner.Start(ctx)
	var over sync.WaitGroup
	over.Go(w.Runner.Run)
	w.T.Cleanup(func() {
		cancel()
		over.Wait()
		w.Tasks.Wait()
	})
}

// Spec returns a job of a number of ranks.
func Spec(ranks uint32) job.Job {
	return job.Job{
		Name: "train", Runtime: job.RuntimeDocker, Args: []string{"python", "train.py"}, Count: ranks,
		Image:     "docker.io/library/python@sha256:" + strings.Repeat("0123456789abcdef", 4),
		Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts:  job.Timeouts{Queue: time.Minute, Run: time.Hour}, Payment: job.Payment{Free: true},
	}
}

// Parts are rooms that note the effects of a job's machine.
type Parts struct {
	mu      sync.Mutex
	states  []jobs.State
	effects []jobs.Effect
	ended   int
	bell    chan struct{}
}

// NewParts returns rooms that have seen nothing.
func NewParts() *Parts { return &Parts{bell: make(chan struct{})} }

func (p *Parts) ring() {
	close(p.bell)
	p.bell = make(chan struct{})
}

// Changed implements run.Parts.
func (p *Parts) Changed(st jobs.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = append(p.states, st)
	p.ring()
}

// Carry implements run.Parts.
func (p *Parts) Carry(f jobs.Effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.effects = append(p.effects, f)
	p.ring()
}

// Ended implements run.Parts.
func (p *Parts) Ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	p.ring()
}

// Seen returns the states, the effects, and how often the job ended.
func (p *Parts) Seen() ([]jobs.State, []jobs.Effect, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]jobs.State(nil), p.states...), append([]jobs.Effect(nil), p.effects...), p.ended
}

// Until waits until the effects are as wanted.
func (p *Parts) Until(t testing.TB, wanted func([]jobs.Effect) bool) {
	t.Helper()
	for {
		p.mu.Lock()
		bell, ok := p.bell, wanted(p.effects)
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-bell:
		case <-t.Context().Done():
			t.Fatal("the effects are not as wanted")
		}
	}
}

// Has returns the first effect of a type.
func Has[F jobs.Effect](all []jobs.Effect) (f F, ok bool) {
	for _, e := range all {
		if f, ok = e.(F); ok {
			return f, true
		}
	}
	return f, false
}

// Voice is the identity of Self.
type Voice struct{}

// Key implements leases.Principal.
func (Voice) Key() sign.Signer { return Self }

// Alone implements leases.Principal.
func (Voice) Alone() bool { return true }

// Epoch implements leases.Principal.
func (Voice) Epoch() uint64 { return 0 }

// Changed implements leases.Principal.
func (Voice) Changed(context.Context, *leases.Lease) {}

// Voucher implements leases.Principal.
func (v Voice) Voucher(_ context.Context, _ *leases.Lease, of verify.Voucher) (verify.SignedVoucher, error) {
	return verify.SignVoucher(Genesis.Domain(), of, v.Keys(), Self)
}

// Keys implements run.Voice.
func (Voice) Keys() market.KeySet {
	set, err := market.NewKeySet(1, Self.Key())
	if err != nil {
		panic(err)
	}
	return set
}

// Terms implements run.Voice.
func (Voice) Terms(spec job.Job, salt []byte) (sign.Hash, error) { return record.Terms(spec, salt) }

// Open opens a job of a specification, of which no machine exists yet. The voice is optional; if nil, it is Voice.
func (w *World) Open(spec job.Job, p run.Parts, as run.Voice, change func(*record.Job)) *run.Job {
	w.T.Helper()
	j := record.Job{ID: record.NewID(), Spec: spec, State: record.Queued, Created: time.Now(),
		Ranks: make([]record.Rank, spec.Count)}
	for i := range j.Ranks {
		j.Ranks[i].State = record.RankWaiting
	}
	if as == nil {
		as = Voice{}
	}
	if change != nil {
		change(&j)
	}
	of, err := w.Runner.Open(j, true, as)
	if err != nil {
		w.T.Fatal(err)
	}
	of.Serve(p)
	w.T.Cleanup(of.EndLogs)
	return of
}

// Params returns the parameters of a job's machine.
func (w *World) Params(j *run.Job) jobs.Params {
	w.T.Helper()
	p, err := j.Peek().Params(Genesis, time.Second)
	if err != nil {
		w.T.Fatal(err)
	}
	return p
}

// Begin starts the machine of a new job. Restore comes before.
func (w *World) Begin(j *run.Job) {
	w.T.Helper()
	b := run.Beginning{Params: w.Params(j), Owner: true, Created: j.Peek().Created}
	if err := w.Runner.Begin(w.T.Context(), j, b, nil); err != nil {
		w.T.Fatal(err)
	}
}

// Restore makes the machines of jobs.
func (w *World) Restore(all ...*run.Job) {
	w.T.Helper()
	if err := w.Runner.Restore(w.T.Context(), all); err != nil {
		w.T.Fatal(err)
	}
}

// Core returns the content of a lease of a rank, at the rank's provider.
func Core(rank int) market.LeaseCore {
	set, err := market.NewKeySet(1, Self.Key())
	if err != nil {
		panic(err)
	}
	p := Provider(rank).Key()
	return market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Order: market.OrderID{7}, Buyer: Self.Key(), Provider: p, Payout: p,
		VoucherKeys: set.Hash(), Start: 990, ActivateBefore: 1010, End: 9990,
		Rank: uint32(rank), RankEpoch: 1, Nonce: market.Nonce{byte(rank), 3},
	}
}

// Lease returns a lease of a job, with a payer that has begun.
func (w *World) Lease(j *run.Job, core market.LeaseCore) *leases.Lease {
	w.T.Helper()
	set, err := market.NewKeySet(1, Self.Key())
	if err != nil {
		w.T.Fatal(err)
	}
	signed := market.Lease{Core: core}
	rec := leases.Record{Job: j.ID, Lease: signed.Marshal(), Keys: set.Marshal(), At: time.Now(), Active: true}
	payer, err := meter.NewPayer(metering.Terms(Genesis, core, set, rec.Escrow, rec.PerUnit, 0))
	if err == nil {
		payer, _, err = payer.Step(w.slot, meter.Started{})
	}
	var state []byte
	if err == nil {
		state, err = payer.Marshal()
	}
	if err != nil {
		w.T.Fatal(err)
	}
	l, err := w.Book.Restore(rec, state, j.As())
	if err == nil {
		err = w.Book.Link([]*leases.Lease{l})
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return l
}

// Working gives each rank of a job a lease and an execution, as an earlier process left them. Restore comes after.
func (w *World) Working(j *run.Job, change func(*jobs.State)) []*leases.Lease {
	w.T.Helper()
	now := jobs.Now{Time: time.Now(), Slot: w.slot}
	st, _ := run.Beginning{Params: w.Params(j), Owner: true, Created: now.Time}.State(now)
	st.Phase, st.Started = jobs.Working, now.Time
	var all []*leases.Lease
	for i := range st.Ranks {
		l := w.Lease(j, Core(i))
		all = append(all, l)
		j.Hold(l)
		st.Ranks[i] = jobs.Rank{State: jobs.RankRunning, Epoch: 1, Lease: l.ID, Provider: l.Core.Provider, Seq: 1,
			Begun: now.Time}
	}
	if change != nil {
		change(&st)
	}
	work, err := st.Encode()
	if err == nil {
		err = j.Load(work)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// Settle returns once the job's machine has taken in all that was posted to it before.
func (w *World) Settle(j *run.Job) {
	w.T.Helper()
	if _, err := j.Ask(w.T.Context(), run.Event{}); err != nil {
		w.T.Fatal(err)
	}
}

// Encoded returns a value as JSON.
func Encoded(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
