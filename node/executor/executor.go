package executor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// Files is the exchange of files with other peers.
type Files interface {
	// Obtain brings a file of at most max bytes from one of its places into the store of blobs.
	Obtain(ctx context.Context, at workload.Places, c cid.Cid, max int64) error
	// Grant lets a peer fetch a file of ours.
	Grant(to peer.ID, c cid.Cid)
	// Join lets the fellows of a buyer's execution read its files here, until leave is called.
	Join(buyer peer.ID, fellows []peer.ID, files []cid.Cid) (leave func())
	// Drop removes files from the store of blobs, unless something else needs them.
	Drop(all ...cid.Cid)
}

// Config is the configuration of an Executor. All of it is required.
type Config struct {
	Dir      string // absolute; each execution has a directory in it
	Store    journal.Store
	Files    Files
	Runtimes map[string]runtime.Runtime
	Log      *slog.Logger
}

// Lease is the executor's view of a line of leases: a lease and the successors that extend it.
type Lease struct {
	First     market.LeaseID // names the line
	Buyer     sign.Key       // signed the leases
	Units     []market.UnitID
	Storage   bool           // the units are of disk: the lease is for a volume, and for nothing else
	Limits    runtime.Limits // of all units together
	Job       sign.Hash      // hash of the job's terms
	Guardians sign.Hash      // key set that may transfer the command to another peer; zero if none
	Epoch     uint64         // supervision epoch
}

// Executor runs the executions of all leases. New starts nothing; Restore does. All methods may be called at once from
// many goroutines.
type Executor struct {
	cfg   Config
	hooks hooks
	ctx   context.Context // of Restore; the context of all executions
	wg    sync.WaitGroup  // of executions

	mu       sync.Mutex
	all      map[Key]*Execution
	starting map[market.LeaseID]starting
	closed   map[market.LeaseID]bool // nothing more begins under these
	ends     map[string]uint64
}

// New returns an executor with hooks in their order.
func New(cfg Config, hooks ...Hook) *Executor {
	return &Executor{
		cfg: cfg, hooks: hooks, ctx: context.Background(), all: map[Key]*Execution{},
		starting: map[market.LeaseID]starting{}, closed: map[market.LeaseID]bool{}, ends: map[string]uint64{},
	}
}

// Start runs a workload for the peer that commands a lease, once for each lease and number: a repeated start returns
// the same execution. It returns workload.ErrWorkload, with a text for the buyer, if the workload is refused.
func (x *Executor) Start(
	ctx context.Context, by peer.ID, l Lease, seq uint64, w *nodepb.Workload,
) (*Execution, error) {
	k := Key{l.First, seq}
	if e, ok := x.Find(k); ok {
		return e, nil
	}
	wj, err := protojson.Marshal(w)
	if err != nil {
		return nil, workload.Bad("%v", err)
	}
	rec := record{
		Buyer: by, Job: l.Job, Guardian: l.Guardians, Epoch: l.Epoch, Units: l.Units, Limits: l.Limits, Workload: wj,
	}
	state := &nodepb.Execution{Lease: l.First[:], Seq: seq, State: nodepb.ExecState_EXEC_STATE_PULLING}
	e := x.make(k, w, rec, state)
	if _, stores := x.cfg.Runtimes[w.GetRuntime()].(runtime.Storer); stores != l.Storage {
		return nil, workload.Bad("runtime %q: units of disk are for volumes alone, and volumes for units of disk",
			w.GetRuntime())
	}
	if err := x.hooks.admit(e, l.Buyer); err != nil {
		return nil, err
	}
	return x.begin(ctx, e)
}

// make constructs the value; it journals and starts nothing.
func (x *Executor) make(k Key, w *nodepb.Workload, rec record, state *nodepb.Execution) *Execution {
	e := &Execution{
		Key: k, Work: w, Units: rec.Units, Limits: rec.Limits, rec: rec, state: state, x: x,
		dir:  filepath.Join(x.cfg.Dir, k.Lease.String()[:16], fmt.Sprint(k.Seq)),
		wake: make(chan struct{}), turn: make(chan struct{}, 1), write: make(chan struct{}, 1), values: map[any]any{},
		alive: x.ctx, die: func() {}, drop: func() {},
	}
	e.turn <- struct{}{}
	e.write <- struct{}{}
	return e
}

// begin journals and starts an admitted execution, or returns an earlier one of its key.
func (x *Executor) begin(ctx context.Context, e *Execution) (*Execution, error) {
	earlier, err := x.reserve(ctx, e)
	if earlier != nil || err != nil {
		return earlier, err
	}
	err = e.Persist(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.starting[e.Lease].done)
	delete(x.starting, e.Lease)
	if err != nil {
		return nil, err
	}
	x.all[e.Key] = e
	x.spawn(e)
	return e, nil
}

// starting is an execution that is being journalled for the first time.
type starting struct {
	*Execution
	done chan struct{} // closed when that succeeded or failed
}

// settled returns, with x.mu held, when no execution is starting under a lease.
func (x *Executor) settled(ctx context.Context, l market.LeaseID) error {
	for {
		x.mu.Lock()
		s, busy := x.starting[l]
		if !busy {
			return nil
		}
		x.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
		}
	}
}

// reserve lets e start under its lease if nothing else runs or starts there, or returns the earlier execution of its
// key.
func (x *Executor) reserve(ctx context.Context, e *Execution) (earlier *Execution, err error) {
	if err := x.settled(ctx, e.Lease); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	if earlier := x.all[e.Key]; earlier != nil {
		return earlier, nil
	}
	if x.closed[e.Lease] {
		return nil, workload.Bad("the lease is ending")
	}
	if w := e.Work; max(w.MemoryMib, w.ShmMib) > e.Limits.MemoryMiB || w.DiskMib > e.Limits.DiskMiB {
		return nil, workload.Bad("limits of %d MiB of memory and %d MiB of disk, the lease has %d and %d",
			max(w.MemoryMib, w.ShmMib), w.DiskMib, e.Limits.MemoryMiB, e.Limits.DiskMiB)
	}
	var used users
	for k, other := range x.all {
		ended := other.Ended()
		if k.Lease == e.Lease && !ended {
			return nil, workload.Bad("execution %d of this lease still runs", k.Seq)
		}
		used.add(k.Lease, other.rec.User, !ended)
	}
	for l, other := range x.starting {
		used.add(l, other.rec.User, true)
	}
	if e.rec.User, err = used.pick(e.Lease); err != nil {
		return nil, err
	}
	x.starting[e.Lease] = starting{e, make(chan struct{})}
	return nil, nil
}

// Find returns an execution.
func (x *Executor) Find(k Key) (*Execution, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.all[k]
	return e, ok
}

// All returns all executions that are not forgotten.
func (x *Executor) All() []*Execution {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.all))
}

// Under returns the executions under a lease, in the order of their numbers.
func (x *Executor) Under(l market.LeaseID) []*Execution {
	var out []*Execution
	for _, e := range x.All() {
		if e.Lease == l {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Execution) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// Leases returns the leases that have executions.
func (x *Executor) Leases() []market.LeaseID {
	seen := map[market.LeaseID]bool{}
	for _, e := range x.All() {
		seen[e.Lease] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// Ends returns how many executions ended since the start, by their outcome: "ok", "exit" for another code, "failed", or
// the reason of the end such as "oom".
func (x *Executor) Ends() map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.ends)
}

// stopWait is how long AskToStop waits for an end: within the deadline of one call of a stream.
const stopWait = 3 * time.Second

// Halt requests the end of an execution's program at once, for a hook. It returns when the program has ended.
func Halt(e *Execution) error { return e.x.Stop(e.x.ctx, e, 0) }

// AskToStop requests an execution's end within a grace, once. If the program takes longer than a call may, the call
// returns and the buyer watches the execution.
func (x *Executor) AskToStop(e *Execution, grace time.Duration) error {
	if e.Stopping() {
		return nil
	}
	done := make(chan error, 1)
	x.wg.Go(func() {
		err := x.Stop(x.ctx, e, grace)
		if err != nil {
			e.mu.Lock()
			e.stop = false // the request can be repeated
			e.mu.Unlock()
		}
		done <- err
	})
	t := time.NewTimer(stopWait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return nil
	}
}

// Stop requests an execution's end, which is reported like any other.
func (x *Executor) Stop(ctx context.Context, e *Execution, grace time.Duration) error {
	e.mu.Lock()
	e.stop, e.grace = true, grace
	h := e.handle
	done := e.state.State.Ended()
	e.mu.Unlock()
	if done {
		return nil
	}
	if h == nil {
		e.drop()
		return nil
	}
	return e.Runtime().Stop(ctx, *h, grace)
}
