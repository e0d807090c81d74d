package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

var (
	genesis = market.Genesis{Network: "test", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}
	buyer   = sign.NewPrivate([32]byte{200})
)

// provider returns the key of a provider.
func provider(n byte) sign.Private { return sign.NewPrivate([32]byte{n}) }

// world has the jobs of a peer, the chain, and providers whose results are known before.
type world struct {
	t       *testing.T
	began   time.Time
	store   *store.Memory
	checker *Checker

	mu       sync.Mutex
	jobs     map[string]*fakeJob
	answers  []answer // of the replicas, in the order in which they are bought
	bought   int
	proofs   []replica.Dissent
	stopped  []string
	full     int // so many replicas find no room
	noBlocks bool
	refused  string // why no replica is granted
	bonds    map[sign.Key]sign.Key
}

// answer is the result of a provider. Without a file, its job fails.
type answer struct {
	by       byte
	file     string
	unsigned bool
	endless  bool // it never ends
}

func newWorld(t *testing.T, answers ...answer) *world {
	w := &world{
		t: t, began: time.Now(), store: store.NewMemory(), jobs: map[string]*fakeJob{}, answers: answers,
		bonds: map[sign.Key]sign.Key{},
	}
	var err error
	if w.checker, err = New(t.Context(), Config{
		Genesis: genesis, Buyer: replica.Party{Provider: buyer.Key(), Owner: sign.Key{77}}, Store: w.store, Clock: w, Blocks: w,
		Jobs: w, Stakes: w, Disputes: w, Log: p2ptest.Quiet(),
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// spec is a job of one rank with an output.
func spec() job.Job {
	return job.Job{
		Name: "train", Runtime: job.RuntimeWasm, Module: "m.wasm", Count: 1, Verify: job.VerifyReplicate,
		Blobs:     map[string]job.Blob{"m.wasm": {CID: blob.Sum([]byte("m")).String(), Size: 1}},
		Outputs:   []job.Output{{Path: "/out"}},
		Resources: job.Resources{Class: "cpu", Units: 1, PerUnit: market.Resources{MemoryMiB: 64, DiskMiB: 64}},
		Payment:   job.Payment{MaxPrice: 1000, Budget: 5000}, Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour},
	}
}

// add adds a job whose rank has an answer.
func (w *world) add(id string, s job.Job, of *record.Replica, a answer) *fakeJob {
	core := market.LeaseCore{Provider: provider(a.by).Key(), Payout: sign.Key{a.by}, Buyer: buyer.Key(), Nonce: market.Nonce{a.by}}
	j := record.Job{ID: id, Spec: s, State: record.Settling, Outcome: record.Succeeded, Replica: of, Nonce: sign.Hash{1}}
	j.Ranks = []record.Rank{{State: record.RankDone, Lease: core.ID(), Provider: core.Provider}}
	if of == nil {
		j.Verified = make([]record.Verified, 1)
	}
	f := &fakeJob{w: w, job: j, lease: core}
	switch {
	case a.endless:
		f.job.State, f.job.Outcome = record.Running, ""
	case a.file == "":
		f.job.State, f.job.Outcome, f.job.Reason = record.Failed, record.Failed, "its program failed"
	default:
		c := blob.Sum([]byte(a.file))
		f.job.Ranks[0].Outputs = []record.Output{{Path: "/out", Blob: record.Blob{CID: c.String(), Size: int64(len(a.file)), Tree: true}}}
		f.receipt = w.receipt(f.job, core, a)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[id] = f
	return f
}

// receipt is the last receipt of a lease, of the job's output unless the provider signed none.
func (w *world) receipt(j record.Job, core market.LeaseCore, a answer) verify.Receipt {
	program, err := record.Workload(j, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	of, err := work.Work(program)
	if err != nil {
		w.t.Fatal(err)
	}
	o := j.Ranks[0].Outputs[0]
	c := blob.Sum([]byte(a.file))
	res, err := work.Result(program, 0, []*nodepb.Output{{Path: o.Path, Blob: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(o.Size), Tree: true}}})
	if err != nil {
		w.t.Fatal(err)
	}
	r := verify.ReceiptCore{
		Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, RankEpoch: 1, Lease: core.ID(), Seq: 1,
		Provider: core.Provider, Buyer: buyer.Key(), From: 10, To: 20, Amount: 5, Cumulative: 5,
	}
	if !a.unsigned {
		r.Output = of.Output(res)
	}
	out := verify.Receipt{ReceiptCore: r}
	if out.ProviderSig, err = r.Sign(genesis.Domain(), provider(a.by)); err == nil {
		out.BuyerSig, err = r.Sign(genesis.Domain(), buyer)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// Now implements Clock.
func (w *world) Now(t time.Time) (market.Slot, error) {
	return market.Slot(t.Sub(w.began)/(100*time.Millisecond)) + 100, nil
}

// Block implements chain.Blocks.
func (w *world) Block(_ context.Context, from market.Slot) (chain.Block, error) {
	if now, _ := w.Now(time.Now()); now < from || w.noBlocks {
		return chain.Block{}, chain.ErrNotFound
	}
	return chain.Block{Slot: from, Hash: sign.Hash{byte(from), 5}}, nil
}

// Get implements Jobs.
func (w *world) Get(id string) (Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[id]; j != nil {
		return j, nil
	}
	return nil, errors.New("no such job")
}

// Replicate implements Jobs.
func (w *world) Replicate(_ context.Context, s job.Job, of record.Replica, _, once string) (string, error) {
	w.mu.Lock()
	if w.full > 0 {
		w.full--
		w.mu.Unlock()
		return "", fmt.Errorf("%w: %w", record.ErrRefused, ErrRoom)
	}
	if w.jobs[once] != nil {
		w.mu.Unlock()
		return once, nil
	}
	if w.bought == len(w.answers) {
		w.mu.Unlock()
		return "", fmt.Errorf("%w: nobody is left", record.ErrRefused)
	}
	a := w.answers[w.bought]
	w.bought++
	w.mu.Unlock()
	w.add(once, s, &of, a)
	return once, nil
}

// Stop implements Jobs.
func (w *world) Stop(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = append(w.stopped, id)
	return nil
}

// Bond implements Stakes.
func (w *world) Bond(_ context.Context, p sign.Key) (sign.Key, market.Amount, error) {
	if owner, ok := w.bonds[p]; ok {
		return owner, 5, nil
	}
	return sign.Key{}, 0, chain.ErrNotFound
}

// KeepDispute implements Disputes.
func (w *world) KeepDispute(_ context.Context, d replica.Dissent) (string, error) {
	w.proofs = append(w.proofs, d)
	return fmt.Sprint("proof-", len(w.proofs)), nil
}

// fakeJob is a job whose record is in memory.
type fakeJob struct {
	w       *world
	lease   market.LeaseCore
	receipt verify.Receipt
	breaks  int // so many writes of the journal fail

	mu     sync.Mutex
	job    record.Job
	steps  []trace.Step
	judged []Judgement
}

func (f *fakeJob) Snapshot() record.Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job.Clone()
}

func (f *fakeJob) write() error {
	if f.breaks > 0 {
		f.breaks--
		return errors.New("disk full")
	}
	return nil
}

func (f *fakeJob) Save(_ context.Context, change func(*record.Job), steps ...trace.Step) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.write(); err != nil {
		return err
	}
	j := f.job.Clone()
	change(&j)
	f.job, f.steps = j, append(f.steps, steps...)
	return nil
}

func (f *fakeJob) Leases() []market.LeaseCore { return []market.LeaseCore{f.lease} }

func (f *fakeJob) Settled(ctx context.Context, l market.LeaseID) (verify.Receipt, error) {
	if l != f.lease.ID() {
		return verify.Receipt{}, errors.New("no such lease")
	}
	return f.receipt, ctx.Err()
}

func (f *fakeJob) Grant(_ context.Context, _ int, _ uint32, most market.Amount) (market.Amount, error) {
	if f.w.refused != "" {
		return 0, fmt.Errorf("%w: %s", record.ErrRefused, f.w.refused)
	}
	return most, nil
}

func (f *fakeJob) Judged(ctx context.Context, v Judgement, changes []store.Put) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.write(); err != nil {
		return err
	}
	j := f.job.Clone()
	v.Verified.Replicas = j.Verified[v.Rank].Replicas
	j.Verified[v.Rank] = v.Verified
	if v.Outputs != nil {
		j.Ranks[v.Rank].Outputs = v.Outputs
	}
	f.job, f.judged, f.steps = j, append(f.judged, v), append(f.steps, v.Step)
	return f.w.store.Write(ctx, slices.Clone(changes)...)
}
