package provider

import (
	"context"
	"encoding/json"
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
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
)

const kindExecution = "execution"

// maxModule bounds the program of a workload, bytes.
const maxModule = 512 << 20

func execKey(l market.LeaseID, seq uint64) string { return fmt.Sprintf("%s/%020d", l, seq) }

// execRecord is what the journal has of an execution.
type execRecord struct {
	Lease    market.LeaseID  `json:"lease"`
	Buyer    peer.ID         `json:"buyer"`
	Units    int             `json:"units"`
	Limits   runtime.Limits  `json:"limits"`
	Attempt  int             `json:"attempt"`          // counts the starts, so that each has a directory of its own
	Handle   json.RawMessage `json:"handle,omitempty"` // set once the runtime has it
	Workload json.RawMessage `json:"workload"`         // nodepb.Workload
	State    json.RawMessage `json:"state"`            // nodepb.Execution
}

// execution is one run of a workload under a lease, from pulling to its end.
type execution struct {
	rec  execRecord
	work *nodepb.Workload
	dir  string

	mu     sync.Mutex
	state  *nodepb.Execution
	handle *runtime.Handle
	stop   bool
	grace  time.Duration
	cancel context.CancelFunc // ends the pulling
	wake   chan struct{}      // closed and replaced on every change
}

func (e *execution) snapshot() (*nodepb.Execution, *runtime.Handle, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return proto.Clone(e.state).(*nodepb.Execution), e.handle, e.wake
}

// executor runs the executions of all leases.
type executor struct {
	dir      string
	store    store.Store
	blobs    workload.Blobs
	fetch    workload.Fetcher
	grant    func(to peer.ID, c cid.Cid)
	runtimes map[string]runtime.Runtime
	log      *slog.Logger

	mu     sync.Mutex
	exec   map[string]*execution        // by execKey
	over   map[market.LeaseID]time.Time // when a lease was first seen without a live record
	closed map[market.LeaseID]bool      // nothing more begins under these
	wg     sync.WaitGroup
	ctx    context.Context // of Run; executions live as long
}

func (x *executor) stage(e *execution) workload.Stage {
	return workload.Stage{Dir: filepath.Join(e.dir, fmt.Sprintf("a%d", e.rec.Attempt))}
}

// newExecution makes the value; nothing is journalled or started.
func (x *executor) newExecution(l market.LeaseID, seq uint64, buyer peer.ID, w *nodepb.Workload, lim runtime.Limits) (*execution, error) {
	wj, err := protojson.Marshal(w)
	if err != nil {
		return nil, workload.Bad("%v", err)
	}
	return &execution{
		rec:   execRecord{Lease: l, Buyer: buyer, Limits: lim, Workload: wj},
		work:  w,
		dir:   filepath.Join(x.dir, l.String()[:16], fmt.Sprint(seq)),
		state: &nodepb.Execution{Lease: l[:], Seq: seq, State: nodepb.ExecState_EXEC_STATE_PULLING},
		wake:  make(chan struct{}),
	}, nil
}

// start runs a workload, once per (lease, seq): asking again returns the same execution.
func (x *executor) start(ctx context.Context, l market.LeaseID, seq uint64, buyer peer.ID, w *nodepb.Workload, lim runtime.Limits) (*execution, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.exec[execKey(l, seq)]; e != nil {
		return e, nil
	}
	if x.closed[l] {
		return nil, workload.Bad("the lease is ending")
	}
	if err := workload.Check(w, x.runtimes); err != nil {
		return nil, err
	}
	for _, e := range x.exec {
		if e.rec.Lease != l {
			continue
		}
		if s, _, _ := e.snapshot(); !s.State.Ended() {
			return nil, workload.Bad("execution %d of this lease still runs", s.Seq)
		}
	}
	e, err := x.newExecution(l, seq, buyer, w, lim)
	if err != nil {
		return nil, err
	}
	if err := x.persist(ctx, e); err != nil {
		return nil, err
	}
	x.exec[execKey(l, seq)] = e
	x.spawn(e)
	return e, nil
}

// persist journals e as it stands; e.mu must not be held.
func (x *executor) persist(ctx context.Context, e *execution) error {
	e.mu.Lock()
	rec := e.rec
	state, err := protojson.Marshal(e.state)
	if err == nil && e.handle != nil {
		rec.Handle, err = e.handle.Marshal()
	}
	seq := e.state.Seq
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encoding execution: %w", err)
	}
	rec.State = state
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding execution: %w", err)
	}
	if err := x.store.Write(ctx, store.Put{Kind: kindExecution, Key: execKey(rec.Lease, seq), Value: b}); err != nil {
		return fmt.Errorf("journalling execution: %w", err)
	}
	return nil
}

// spawn runs e in a goroutine that Run waits for.
func (x *executor) spawn(e *execution) {
	ctx, cancel := context.WithCancel(x.ctx)
	e.cancel = cancel
	x.wg.Add(1)
	go func() {
		defer x.wg.Done()
		defer cancel()
		x.run(ctx, e)
	}()
}

// run takes e from where it stands to its end. When the peer itself is being
// stopped it returns early, and the program runs on for the next peer process.
func (x *executor) run(ctx context.Context, e *execution) {
	rt := x.runtimes[e.work.Runtime]
	if e.handle == nil {
		if err := x.launch(ctx, e, rt); err != nil {
			reason := "start"
			e.mu.Lock()
			if e.stop {
				reason = string(runtime.ReasonKilled)
			}
			e.mu.Unlock()
			if x.ctx.Err() == nil {
				x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, reason, err.Error(), nil)
			}
			return
		}
	}
	exit, err := rt.Wait(x.ctx, *e.handle)
	if x.ctx.Err() != nil {
		return
	}
	if err != nil {
		x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, "lost", err.Error(), nil)
		return
	}
	if st, err := rt.Stats(x.ctx, *e.handle); err == nil {
		e.mu.Lock()
		e.state.CpuMillis = st.CPUMillis
		e.mu.Unlock()
	}
	e.mu.Lock()
	e.state.WallMillis = uint64(max(exit.Ended.Sub(exit.Started), 0) / time.Millisecond)
	e.mu.Unlock()
	outs, err := x.stage(e).Collect(x.ctx, e.work.Outputs, x.blobs)
	if err != nil {
		x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, exit.Code, "output", err.Error(), nil)
		return
	}
	x.finish(e, nodepb.ExecState_EXEC_STATE_EXITED, exit.Code, string(exit.Reason), "", outs)
}

// launch pulls what the workload needs and starts it.
func (x *executor) launch(ctx context.Context, e *execution, rt runtime.Runtime) error {
	module, err := workload.CID(e.work.Module)
	if err != nil {
		return err
	}
	if err := x.fetch(ctx, e.rec.Buyer, module, maxModule); err != nil {
		return fmt.Errorf("fetching the program: %w", err)
	}
	program, err := x.blobs.Path(module)
	if err != nil {
		return fmt.Errorf("fetching the program: %w", err)
	}
	st := x.stage(e)
	mounts, err := st.Prepare(ctx, e.work, e.rec.Buyer, x.blobs, x.fetch, int64(e.rec.Limits.DiskMiB)<<20)
	if err != nil {
		return err
	}
	h, err := rt.Start(ctx, runtime.Spec{
		ID: fmt.Sprintf("%s-%d", e.rec.Lease.String()[:16], e.state.Seq), Module: program,
		Args: e.work.Args, Env: e.work.Env, Mounts: mounts,
		Limits: e.rec.Limits, Dir: st.Run(), Seed: e.work.Seed,
	})
	if err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	e.mu.Lock()
	e.handle = &h
	e.state.State = nodepb.ExecState_EXEC_STATE_RUNNING
	stop, grace := e.stop, e.grace
	e.mu.Unlock()
	if err := x.persist(x.ctx, e); err != nil {
		_ = rt.Destroy(context.WithoutCancel(ctx), h) // what is not in the journal must not run
		return err
	}
	e.changed()
	if stop {
		return rt.Stop(x.ctx, h, grace)
	}
	return nil
}

func (e *execution) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.wake)
	e.wake = make(chan struct{})
}

// finish journals the end of e and tells whoever follows it.
func (x *executor) finish(e *execution, s nodepb.ExecState, code int, reason, message string, outs []*nodepb.Output) {
	e.mu.Lock()
	e.state.State, e.state.ExitCode, e.state.Reason, e.state.Message, e.state.Outputs = s, int32(code), reason, message, outs
	e.mu.Unlock()
	if err := x.persist(x.ctx, e); err != nil {
		// The end is told all the same: after a restart the runtime answers the same again.
		x.log.Error("journalling the end of an execution failed", "lease", e.rec.Lease, "err", err)
	}
	x.grantOutputs(e)
	state, _, _ := e.snapshot()
	x.log.Info("execution ended", "lease", e.rec.Lease, "seq", state.Seq, "state", state.State, "code", code, "reason", reason, "message", message)
	e.changed()
}

func (x *executor) grantOutputs(e *execution) {
	for _, o := range e.state.Outputs {
		if c, err := workload.CID(o.Blob); err == nil {
			x.grant(e.rec.Buyer, c)
		}
	}
}

// find returns an execution of a lease.
func (x *executor) find(l market.LeaseID, seq uint64) (*execution, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.exec[execKey(l, seq)]
	return e, ok
}

// stop asks an execution to end; it is told like any other end.
func (x *executor) stop(ctx context.Context, e *execution, grace time.Duration) error {
	e.mu.Lock()
	e.stop, e.grace = true, grace
	h := e.handle
	done := e.state.State.Ended()
	e.mu.Unlock()
	if done {
		return nil
	}
	if h == nil {
		e.cancel()
		return nil
	}
	return x.runtimes[e.work.Runtime].Stop(ctx, *h, grace)
}

// stopLease ends whatever runs under a lease.
func (x *executor) stopLease(ctx context.Context, l market.LeaseID, grace time.Duration) {
	for _, e := range x.of(l) {
		if err := x.stop(ctx, e, grace); err != nil && x.ctx.Err() == nil {
			x.log.Warn("stopping an execution failed", "lease", l, "err", err)
		}
	}
}

func (x *executor) of(l market.LeaseID) []*execution {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*execution
	for _, e := range x.exec {
		if e.rec.Lease == l {
			out = append(out, e)
		}
	}
	return out
}

// cpuMillis is the processor time that a lease's executions have used.
func (x *executor) cpuMillis(ctx context.Context, l market.LeaseID) uint64 {
	var sum uint64
	for _, e := range x.of(l) {
		s, h, _ := e.snapshot()
		if !s.State.Ended() && h != nil {
			if st, err := x.runtimes[e.work.Runtime].Stats(ctx, *h); err == nil {
				sum += st.CPUMillis
				continue
			}
		}
		sum += s.CpuMillis
	}
	return sum
}

// shut lets nothing more begin under a lease.
func (x *executor) shut(l market.LeaseID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed[l] = true
}

// leases lists the leases that have executions here.
func (x *executor) leases() []market.LeaseID {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := map[market.LeaseID]bool{}
	for _, e := range x.exec {
		seen[e.rec.Lease] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// idleSince says for how long a lease has been over.
func (x *executor) idleSince(l market.LeaseID, now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.over[l]
	if !ok {
		x.over[l] = now
		return 0
	}
	return now.Sub(at)
}

// forget removes what a lease's ended executions left on disk and in the journal.
func (x *executor) forget(ctx context.Context, l market.LeaseID) error {
	for _, e := range x.of(l) {
		s, h, _ := e.snapshot()
		if !s.State.Ended() {
			continue
		}
		if h != nil {
			if err := x.runtimes[e.work.Runtime].Destroy(ctx, *h); err != nil {
				return fmt.Errorf("removing an execution: %w", err)
			}
		}
		if err := (workload.Stage{Dir: e.dir}).Remove(); err != nil {
			return fmt.Errorf("removing an execution: %w", err)
		}
		if err := x.store.Write(ctx, store.Put{Kind: kindExecution, Key: execKey(l, s.Seq)}); err != nil {
			return err
		}
		x.mu.Lock()
		delete(x.exec, execKey(l, s.Seq))
		x.mu.Unlock()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.over, l)
	delete(x.closed, l)
	return nil
}
