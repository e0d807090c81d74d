package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// MaxStreams is how many streams may lead into the executions of one lease at a time.
	MaxStreams = 64
	// reportEvery is the interval of reports on fetching to an execution's followers.
	reportEvery = 500 * time.Millisecond
)

// Execution is one run of a workload under a lease, from fetching its files to its end. Its exported fields do not
// change. All methods may be called at once from many goroutines.
type Execution struct {
	Key
	Work   *nodepb.Workload
	Units  []market.UnitID
	Limits runtime.Limits

	x   *Executor
	dir string

	alive context.Context // ends with the program; set by spawn
	die   context.CancelFunc
	drop  context.CancelFunc // ends the fetching
	lives sync.WaitGroup     // streams into it
	tasks sync.WaitGroup     // goroutines of hooks
	turn  chan struct{}      // holds one token while no caller pauses, resumes or measures it
	write chan struct{}      // holds one token while no record is written, so that records are written in order

	mu       sync.Mutex
	rec      record
	state    *nodepb.Execution
	handle   *runtime.Handle
	values   map[any]any // of hooks
	stop     bool        // its end was requested
	grace    time.Duration
	wake     chan struct{} // closed and replaced on every change
	reported time.Time     // time of the last report of progress
	over     bool          // the program has ended; nothing more may attach
	streams  int           // streams into it now
}

// Commander returns the peer that commands the execution.
func (e *Execution) Commander() peer.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.Buyer
}

// Snapshot returns a copy of the state, the runtime's handle or nil, and a channel that is closed on the next change.
func (e *Execution) Snapshot() (*nodepb.Execution, *runtime.Handle, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return proto.Clone(e.state).(*nodepb.Execution), e.handle, e.wake
}

// Describe returns the state for the buyer, with the additions of hooks.
func (e *Execution) Describe() *nodepb.Execution {
	s, _, _ := e.Snapshot()
	e.x.hooks.describe(e, s)
	return s
}

// Update changes the state. Followers see it with the next call of Changed, the journal with the next write.
func (e *Execution) Update(change func(s *nodepb.Execution)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e.state)
}

// Changed notifies the followers of the execution.
func (e *Execution) Changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.wake)
	e.wake = make(chan struct{})
}

// Say reports the current work for the execution to its followers.
func (e *Execution) Say(message string) {
	e.Update(func(s *nodepb.Execution) { s.Message = message })
	e.Changed()
}

// Progress records the fetched part of an image, and reports it from time to time.
func (e *Execution) Progress(done, total int64) {
	e.mu.Lock()
	e.state.PulledBytes, e.state.PullTotal = uint64(max(done, 0)), uint64(max(total, 0))
	now := time.Now()
	due := now.Sub(e.reported) >= reportEvery
	if due {
		e.reported = now
	}
	e.mu.Unlock()
	if due {
		e.Changed()
	}
}

// Ended reports whether the execution has ended, and its result is known.
func (e *Execution) Ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.State.Ended()
}

// Paused reports whether the buyer has paused the program.
func (e *Execution) Paused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Paused
}

// Stopping reports whether the execution's end was requested.
func (e *Execution) Stopping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stop
}

// Runtime returns the runtime of the workload, or nil if it is no longer offered here.
func (e *Execution) Runtime() runtime.Runtime { return e.x.cfg.Runtimes[e.Work.Runtime] }

// Program returns the workload and the bounds of its resources.
func (e *Execution) Program() (*nodepb.Workload, runtime.Limits) { return e.Work, e.Limits }

// Stage returns the directory of the current attempt.
func (e *Execution) Stage() workload.Stage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return workload.Stage{Dir: filepath.Join(e.dir, fmt.Sprintf("a%d", e.rec.Attempt))}
}

// Disk returns how many bytes the execution's files may have.
func (e *Execution) Disk() int64 {
	if e.Work.DiskMib > 0 {
		return int64(e.Work.DiskMib) << 20
	}
	return int64(cmp.Or(e.Limits.DiskMiB, runtime.DefaultDiskMiB)) << 20
}

// All returns the executions of this peer that are not forgotten.
func (e *Execution) All() []*Execution { return e.x.All() }

// Under returns the executions under a lease on this peer.
func (e *Execution) Under(l market.LeaseID) []*Execution { return e.x.Under(l) }

// Alive returns a context that ends with the program, or when the peer is stopped.
func (e *Execution) Alive() context.Context { return e.alive }

// Go runs a hook's function until the program has ended. The function returns soon after its context has ended, and no
// Exited is called before.
func (e *Execution) Go(f func(ctx context.Context)) { e.tasks.Go(func() { f(e.alive) }) }

// Enter counts a stream into a running execution. The caller leaves before outputs are read: at the end of Alive.
func (e *Execution) Enter() (handle runtime.Handle, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over || e.state.State.Ended():
		return handle, nil, stream.Refuse("execution", "the program has ended; its outputs and logs are with the job")
	case e.handle == nil:
		return handle, nil, stream.Refuse(stream.CodeBusy, "the program is not running yet: "+e.state.Message)
	case e.streams >= MaxStreams:
		return handle, nil, stream.Refuse(stream.CodeBusy,
			fmt.Sprintf("%d streams lead into this execution already; close one", MaxStreams))
	}
	e.streams++
	e.lives.Add(1)
	return *e.handle, func() {
		e.mu.Lock()
		e.streams--
		e.mu.Unlock()
		e.lives.Done()
	}, nil
}

// end refuses further streams, and waits until all streams and goroutines of hooks have ended.
func (e *Execution) end() {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.die()
	e.lives.Wait()
	e.tasks.Wait()
}

// Take waits for the turn to pause, resume or measure the program: one of these happens at a time. give ends the turn.
func (e *Execution) Take(ctx context.Context) (give func(), err error) {
	select {
	case <-e.turn:
		return func() { e.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Value returns the value that a hook keeps with the execution under a key, or nil. It is not journalled.
func (e *Execution) Value(key any) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.values[key]
}

// SetValue keeps a hook's value with the execution. Keys are of types of the hook's own package.
func (e *Execution) SetValue(key, value any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values[key] = value
}

// Note keeps a hook's note, which is journalled with the execution's next change.
func (e *Execution) Note(hook string, note any) error {
	b, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("encoding a note of %s: %w", hook, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setNoteLocked(hook, b)
	return nil
}

func (e *Execution) setNoteLocked(hook string, note json.RawMessage) {
	if e.rec.Notes == nil {
		e.rec.Notes = map[string]json.RawMessage{}
	}
	if e.rec.Notes[hook] = note; note == nil {
		delete(e.rec.Notes, hook)
	}
}

// Keep journals a hook's note at once. After an error the earlier note is in force.
func (e *Execution) Keep(ctx context.Context, hook string, note any) error {
	e.mu.Lock()
	before := e.rec.Notes[hook]
	e.mu.Unlock()
	if err := e.Note(hook, note); err != nil {
		return err
	}
	if err := e.Persist(ctx); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.setNoteLocked(hook, before)
		return err
	}
	return nil
}

// Noted reads a hook's note, and reports whether there is one.
func (e *Execution) Noted(hook string, note any) (bool, error) {
	e.mu.Lock()
	b := e.rec.Notes[hook]
	e.mu.Unlock()
	if b == nil {
		return false, nil
	}
	if err := json.Unmarshal(b, note); err != nil {
		return false, fmt.Errorf("reading a note of %s: %w", hook, err)
	}
	return true, nil
}

// Persist journals the execution as it stands.
func (e *Execution) Persist(ctx context.Context) error {
	<-e.write
	defer func() { e.write <- struct{}{} }()
	e.mu.Lock()
	rec, err := e.encodeLocked()
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if err := table.Write(ctx, e.x.cfg.Store, e.Key, rec); err != nil {
		return fmt.Errorf("journalling an execution: %w", err)
	}
	return nil
}

// grantLocked lets the peer that commands the execution fetch its outputs and the pack of its checkpoint. A volume's
// file is for that peer and the volume's owner, while the volume runs. e.mu is held.
func (e *Execution) grantLocked() {
	if _, stores := e.Runtime().(runtime.Storer); stores && e.handle != nil && !e.state.State.Ended() {
		for _, c := range inputs(e.Work) {
			e.x.cfg.Files.Grant(e.rec.Buyer, c)
			if owner, err := ownerOf(e.Work); err == nil {
				e.x.cfg.Files.Grant(owner, c)
			}
		}
	}
	for _, c := range left(e.state) {
		e.x.cfg.Files.Grant(e.rec.Buyer, c)
	}
}

// Regrant lets the owner of a volume fetch its file, which a peer with many grants may have forgotten.
func Regrant(e *Execution) { e.Update(func(*nodepb.Execution) { e.grantLocked() }) }

// SetPacks sets the packs of an execution's checkpoint, and why there is no newer one. They are journalled before its
// followers see them, and the peer that commands the execution may fetch them. After an error the earlier ones are in
// force.
func SetPacks(ctx context.Context, e *Execution, packs []*nodepb.Pack, problem string) error {
	var before []*nodepb.Pack
	var trouble string
	e.Update(func(s *nodepb.Execution) {
		before, trouble = s.Packs, s.PackProblem
		s.Packs, s.PackProblem = packs, problem
		e.grantLocked()
	})
	if err := e.Persist(ctx); err != nil {
		e.Update(func(s *nodepb.Execution) { s.Packs, s.PackProblem = before, trouble })
		return err
	}
	e.Changed()
	return nil
}
