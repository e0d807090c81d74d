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
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify/exclusive"
)

const kindExecution = "execution"

func execKey(l market.LeaseID, seq uint64) string { return fmt.Sprintf("%s/%020d", l, seq) }

// execRecord is the journal's record of an execution.
type execRecord struct {
	Lease    market.LeaseID  `json:"lease"`
	Buyer    peer.ID         `json:"buyer"`              // the peer that commands it
	Job      sign.Hash       `json:"job,omitzero"`       // hash of its job's terms
	Guardian sign.Hash       `json:"guardians,omitzero"` // key set that may give the command to another peer
	Epoch    uint64          `json:"epoch,omitempty"`    // supervision epoch under which Buyer commands
	User     uint32          `json:"user"`               // of its program: the lease's own
	Units    []market.UnitID `json:"unit_ids,omitempty"`
	Limits   runtime.Limits  `json:"limits"`
	Attempt  int             `json:"attempt"`          // counts the starts, so that each has a directory of its own
	Handle   json.RawMessage `json:"handle,omitempty"` // set once the runtime has it
	Workload json.RawMessage `json:"workload"`         // nodepb.Workload; its secrets stay sealed
	State    json.RawMessage `json:"state"`            // nodepb.Execution
	Kept     int64           `json:"kept,omitempty"`   // bytes that its logs and outputs take once it has ended
	Plan     []byte          `json:"plan,omitempty"`   // nodepb.ClusterPlan in force; none: the workload's
	Seen     cluster.Seen    `json:"seen,omitempty"`   // of the ranks of its cluster
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
	told   time.Time          // time of the last report of progress

	pausing sync.Mutex      // taken before mu: one pause or resume at a time
	alive   context.Context // ends with the program; set by spawn
	die     context.CancelFunc
	over    bool           // the program has ended; nothing more may attach
	streams int            // streams into it now
	lives   sync.WaitGroup // of them
	gauged
	membership
}

// buyer is the peer that commands the execution.
func (e *execution) buyer() peer.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.Buyer
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
	health   Health // nil: no reports
	domain   sign.Domain
	key      sign.Signer
	networks Networks // nil: executions are of no clusters
	fellow   fellow
	member   func(hold market.HoldID) cluster.PrivateKey // likewise
	launching
	counts *counts

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
func (x *executor) newExecution(r request) (*execution, error) {
	l, seq, w := r.lease, r.seq, r.work
	wj, err := protojson.Marshal(w)
	if err != nil {
		return nil, workload.Bad("%v", err)
	}
	e := &execution{
		rec:   execRecord{Lease: l, Buyer: r.buyer, Units: r.units, Limits: r.limits, Workload: wj, Job: r.job, Guardian: r.guardians, Epoch: r.epoch},
		work:  w,
		dir:   filepath.Join(x.dir, l.String()[:16], fmt.Sprint(seq)),
		state: &nodepb.Execution{Lease: l[:], Seq: seq, State: nodepb.ExecState_EXEC_STATE_PULLING},
		wake:  make(chan struct{}),
	}
	e.plan, e.rec.Seen, e.again = r.plan, r.seen, make(chan struct{}, 1)
	return e, nil
}

// request is a workload that a buyer wants to be run.
type request struct {
	lease  market.LeaseID
	seq    uint64
	buyer  peer.ID
	owner  sign.Key // buyer of the lease
	units  []market.UnitID
	limits runtime.Limits
	work   *nodepb.Workload
	// The job, its guardians and the epoch, by which the command over it can pass to another peer.
	job, guardians sign.Hash
	epoch          uint64
	// Set by start: the cluster that it is a rank of, if it is.
	plan *cluster.Plan
	seen cluster.Seen
}

// start runs a workload, once per (lease, seq): asking again returns the same execution.
func (x *executor) start(ctx context.Context, r request) (*execution, error) {
	l, seq := r.lease, r.seq
	if e, ok := x.find(l, seq); ok {
		return e, nil
	}
	if err := workload.Check(r.work, x.host()); err != nil {
		return nil, err
	}
	var err error
	if r.plan, r.seen, err = x.admit(r); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.exec[execKey(l, seq)]; e != nil {
		return e, nil
	}
	if x.closed[l] {
		return nil, workload.Bad("the lease is ending")
	}
	if w := r.work; w.MemoryMib > r.limits.MemoryMiB || w.DiskMib > r.limits.DiskMiB {
		return nil, workload.Bad("limits of %d MiB of memory and %d MiB of disk, the lease has %d and %d", w.MemoryMib, w.DiskMib, r.limits.MemoryMiB, r.limits.DiskMiB)
	}
	if _, err := x.secrets(l, r.work); err != nil {
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
	e, err := x.newExecution(r)
	if err != nil {
		return nil, err
	}
	if e.rec.User, err = x.userLocked(l); err != nil {
		return nil, err
	}
	if err := x.persist(ctx, e); err != nil {
		return nil, err
	}
	x.exec[execKey(l, seq)] = e
	x.spawn(e)
	return e, nil
}

// userLocked is a user for the programs of a lease that those of no other lease have which run. It begins to look at a number of the
// lease, so that two peers on one machine seldom give out the same.
func (x *executor) userLocked(l market.LeaseID) (uint32, error) {
	used := map[uint32]bool{}
	for _, e := range x.exec {
		if e.rec.Lease == l {
			return e.rec.User, nil
		}
		if s, _, _ := e.snapshot(); !s.State.Ended() {
			used[e.rec.User] = true
		}
	}
	first := uint32(l[0])<<8 | uint32(l[1])
	for i := range uint32(runtime.MaxUser) {
		if u := 1 + (first+i)%runtime.MaxUser; !used[u] {
			return u, nil
		}
	}
	return 0, workload.Bad("%d executions run here", len(used))
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
	e.alive, e.die = context.WithCancel(x.ctx)
	x.wg.Add(1)
	go func() {
		defer x.wg.Done()
		defer cancel()
		defer e.die()
		x.run(ctx, e)
	}()
}

// run takes e from where it stands to its end. When the peer itself is being
// stopped it returns early, and the program runs on for the next peer process.
func (x *executor) run(ctx context.Context, e *execution) {
	rt := x.runtimes[e.work.Runtime]
	if e.handle == nil {
		if err := x.launch(ctx, e, rt); err != nil {
			reason := failure(err)
			e.mu.Lock()
			if e.stop {
				reason = string(runtime.ReasonKilled)
			}
			e.mu.Unlock()
			if x.ctx.Err() == nil {
				x.log.Warn("an execution was not started", "lease", e.rec.Lease, "seq", e.state.Seq, "err", err)
				x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, reason, told(err, notStarted), nil)
			}
			return
		}
	} else {
		x.freezeAgain(e, rt)
	}
	var health sync.WaitGroup
	health.Go(func() { x.checkHealth(e, rt) })
	if e.networked() {
		health.Go(func() { x.attend(e) })
	}
	exit, err := rt.Wait(x.ctx, *e.handle)
	e.end() // attached programs end before the outputs are read
	health.Wait()
	x.leave(e)
	if x.ctx.Err() != nil {
		return
	}
	if err != nil {
		x.log.Warn("an execution was lost", "lease", e.rec.Lease, "seq", e.state.Seq, "err", err)
		x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, reasonLost, told(err, endedOutside), nil)
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
	x.takeSnapshot(e, exclusive.After)
	if exit.Reason == runtime.ReasonLost { // its outputs are incomplete
		x.finish(e, nodepb.ExecState_EXEC_STATE_EXITED, exit.Code, reasonLost, endedOutside, nil)
		return
	}
	outs, err := x.stage(e).Collect(x.ctx, e.work.Outputs, x.blobs, e.disk())
	if err != nil {
		x.log.Warn("what an execution left was not stored", "lease", e.rec.Lease, "seq", e.state.Seq, "err", err)
		x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, exit.Code, reasonOutput, told(err, notStored), nil)
		return
	}
	e.mu.Lock()
	if e.stop && e.work.Seed != 0 && exit.Reason == runtime.ReasonNone {
		// one that was asked to stop, or with a lease that ended first, has no result
		exit.Reason = runtime.ReasonKilled
	}
	e.mu.Unlock()
	x.finish(e, nodepb.ExecState_EXEC_STATE_EXITED, exit.Code, string(exit.Reason), "", outs)
}

func (e *execution) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.wake)
	e.wake = make(chan struct{})
}

// finish journals the end of e and notifies its followers.
func (x *executor) finish(e *execution, s nodepb.ExecState, code int, reason, message string, outs []*nodepb.Output) {
	logs := diskUse(x.stage(e).Run())
	e.mu.Lock() // a reader that sees the end sees all of it, and may fetch the named files
	e.state.State, e.state.ExitCode, e.state.Reason, e.state.Message, e.state.Outputs = s, int32(code), reason, message, outs
	e.state.Paused, e.state.Health, e.state.HealthMessage = false, nodepb.Health_HEALTH_UNSPECIFIED, ""
	x.keepLocked(e, logs)
	x.grantLocked(e)
	e.mu.Unlock()
	x.counts.ended(s, code, reason)
	if err := x.persist(x.ctx, e); err != nil {
		// The end is reported nevertheless: after a restart the runtime answers the same again.
		x.log.Error("journalling the end of an execution failed", "lease", e.rec.Lease, "err", err)
	} else {
		x.clear(e)
	}
	state, _, _ := e.snapshot()
	x.log.Info("execution ended", "lease", e.rec.Lease, "seq", state.Seq, "state", state.State, "code", code, "reason", reason, "message", message)
	e.changed()
}

// grantOutputs lets the peer that commands an execution fetch its outputs.
func (x *executor) grantOutputs(e *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.grantLocked(e)
}

func (x *executor) grantLocked(e *execution) {
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

// stop asks an execution to end; its end is reported like any other.
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
