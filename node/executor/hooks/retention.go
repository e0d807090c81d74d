package hooks

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/workload"
)

// noteRetention is the name of Retention's note.
const noteRetention = "retention"

// kept is Retention's note of an ended execution.
type kept struct {
	Bytes int64 `json:"bytes"` // of its logs and outputs
}

// Retention keeps the outputs and logs of ended executions for their buyers. It is the last hook at an end, after the
// hook of the outputs.
type Retention struct {
	Retain time.Duration
	Files  executor.Files
}

var (
	_ executor.Exit       = Retention{}
	_ executor.Forgetting = Retention{}
)

// Exited records until when an execution's files are kept, and their size: its outputs are in the store of blobs, its
// logs with the runtime.
func (h Retention) Exited(_ context.Context, e *executor.Execution, r *executor.Result) error {
	size := workload.DiskUse(e.Stage().Run())
	for _, o := range r.Outputs {
		size += int64(min(o.GetBlob().GetSize(), 1<<62))
	}
	s, _, _ := e.Snapshot()
	for _, p := range s.Packs {
		size += int64(min(p.GetBlob().GetSize(), 1<<62))
	}
	wanted := e.Work.KeepMillis
	if most := uint64(h.Retain / time.Millisecond); wanted == 0 || wanted > most {
		wanted = most
	}
	e.Update(func(s *nodepb.Execution) { s.KeepUntilMillis = uint64(time.Now().UnixMilli()) + wanted })
	return e.Note(noteRetention, kept{size})
}

// Forget releases the files of an execution that no other one has.
func (h Retention) Forget(e *executor.Execution, _ *journal.Batch) (done func()) {
	return func() {
		used := map[cid.Cid]bool{}
		for _, other := range e.All() {
			for _, c := range executor.FilesOf(other) {
				used[c] = true
			}
		}
		h.Files.Drop(slices.DeleteFunc(executor.FilesOf(e), func(c cid.Cid) bool { return used[c] })...)
	}
}

// Needed returns the files that executions need: outputs and packs of all executions, programs and inputs of running
// ones, and the parts of images that the container engine does not have yet.
func Needed(all []*executor.Execution) map[cid.Cid]bool {
	out := map[cid.Cid]bool{}
	for _, e := range all {
		s, _, _ := e.Snapshot()
		var need []cid.Cid
		if s.State.Ended() {
			need = executor.LeftOf(e)
		} else {
			need = append(executor.FilesOf(e), workload.CIDs(e.Work.Module)...)
		}
		if s.State == nodepb.ExecState_EXEC_STATE_PULLING {
			need = append(need, workload.CIDs(e.Work.ImageParts...)...)
		}
		for _, c := range need {
			out[c] = true
		}
	}
	return out
}

const (
	// sweepEvery is the interval between scans for ended leases. sweepAgain is the delay before another attempt to
	// remove a lease.
	sweepEvery = time.Second
	sweepAgain = 10 * time.Minute
)

// Leases reports ended leases.
type Leases interface {
	// Over returns the ended and settled leases: from executed, and all others that are not forgotten yet.
	Over(executed []market.LeaseID) []market.LeaseID
	// Forgotten is called when all files of a lease are removed.
	Forgotten(l market.LeaseID)
}

// Executions are the executions of all leases. executor.Executor implements it.
type Executions interface {
	Under(l market.LeaseID) []*executor.Execution
	Leases() []market.LeaseID
	Forget(ctx context.Context, l market.LeaseID) error
}

// Sweeper removes the files of ended leases: those kept for long enough, and some of the rest while all take too much.
type Sweeper struct {
	Executions Executions
	Leases     Leases
	Retain     time.Duration
	Bytes      int64 // that everything kept may take together; 0 means no bound
	Log        *slog.Logger

	over  map[market.LeaseID]time.Time // when a lease without executions was first seen over
	stuck map[market.LeaseID]time.Time // leases that cannot be removed, and when that is tried again
}

// Run sweeps until ctx ends. It has its own loop, since a folder with a million files takes long.
func (w *Sweeper) Run(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			w.Sweep(ctx)
		}
	}
}

const forgottenEarly = "an ended lease is forgotten early: retained files take more than provide.retainMiB, " +
	"and its buyer has most of them"

// Sweep removes all files that are due. It must not be called concurrently.
func (w *Sweeper) Sweep(ctx context.Context) {
	now := time.Now()
	due := choose(w.rests(now), w.Bytes, now)
	for _, l := range due {
		if ctx.Err() != nil || now.Before(w.stuck[l.id]) {
			continue
		}
		if now.Before(l.until) {
			w.Log.Warn(forgottenEarly, "lease", l.id, "buyer", l.buyer, "bytes", l.size)
		}
		if err := w.Executions.Forget(ctx, l.id); err != nil {
			w.Log.Warn("an ended lease could not be cleaned up", "lease", l.id, "err", err)
			w.stuck[l.id] = now.Add(sweepAgain)
			continue
		}
		delete(w.stuck, l.id)
		delete(w.over, l.id)
		w.Leases.Forgotten(l.id)
	}
}

// rests returns the ended leases with their files. A lease without executions is retained from the time at which its
// end was first seen.
func (w *Sweeper) rests(now time.Time) (out []rest) {
	if w.over == nil {
		w.over, w.stuck = map[market.LeaseID]time.Time{}, map[market.LeaseID]time.Time{}
	}
	for _, id := range w.Leases.Over(w.Executions.Leases()) {
		l := rest{id: id}
		all := w.Executions.Under(id)
		for _, e := range all {
			s, _, _ := e.Snapshot()
			if at := time.UnixMilli(int64(s.KeepUntilMillis)); at.After(l.until) {
				l.until = at
			}
			var k kept
			if _, err := e.Noted(noteRetention, &k); err == nil {
				l.size += k.Bytes
			}
			l.buyer = e.Commander()
		}
		if len(all) == 0 {
			at, seen := w.over[id]
			if !seen {
				at = now
				w.over[id] = now
			}
			l.until = at.Add(w.Retain)
		}
		out = append(out, l)
	}
	return out
}
