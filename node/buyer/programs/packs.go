package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/go-cid"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
)

const (
	// lastTime bounds the fetch of a pack of a program that has ended: its rank waits.
	lastTime = 2 * time.Minute
	// maxInput bounds the size of an input in a sum, in bytes.
	maxInput = 1 << 50
	// maxComplaints bounds the lines about the packs of one execution in the job's trace.
	maxComplaints = 4
)

// Packs are the blobs of this peer, in which the packs of checkpoints are.
type Packs interface {
	executions.Packs
	Has(c cid.Cid) bool
}

// Blobs are the blobs of this peer for all rooms.
type Blobs interface {
	work.Blobs
	Packs
}

// packs is the state of the packs of an execution, under the mu of Programs.
type packs struct {
	newest     *nodepb.Pack // that the provider reported
	done       *nodepb.Pack // that was fetched, or never can be
	busy       bool         // a goroutine fetches
	complaints int
	problem    string // last reported by the provider
}

// packed takes the provider's report of an execution, and begins to fetch its newest pack.
func (x *Programs) packed(e jobs.Exec, l *leases.Lease, ex *nodepb.Execution) {
	f := x.known(e)
	if x.Peek().Spec.Checkpoint == nil || f == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &f.packs
	if ex.PackProblem != p.problem {
		if p.problem = ex.PackProblem; p.problem != "" {
			x.complainLocked(f, l, "the provider made no pack: "+record.Clean(p.problem))
		}
	}
	if n := len(ex.Packs); n > 0 {
		p.newest = ex.Packs[n-1]
	}
	if !p.busy && !proto.Equal(p.newest, p.done) {
		p.busy = true
		x.cfg.Tasks.Go(func() { x.keepPacks(f, l) })
	}
}

// complainLocked adds a line about the packs of an execution to the trace. x.mu is held.
func (x *Programs) complainLocked(f *following, l *leases.Lease, text string) {
	if f.packs.complaints++; f.packs.complaints > maxComplaints {
		return
	}
	i := int(f.exec.Rank)
	provider := l.Core.Provider.String()
	x.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Packed, Rank: &i, Provider: provider, Detail: text})
	x.Trace.Poke()
}

// keepPacks fetches the newest packs of an execution, one at a time and at most one in an interval, until it has the
// newest or the execution is no longer followed.
func (x *Programs) keepPacks(f *following, l *leases.Lease) {
	every := time.Duration(x.Peek().Spec.Checkpoint.Every)
	for {
		x.mu.Lock()
		p := f.packs.newest
		if proto.Equal(p, f.packs.done) {
			f.packs.busy = false
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		next := time.Now().Add(every * 3 / 4) // providers are not exact
		x.keepPack(f.ctx, f, l, p)
		if run.Pause(f.ctx, time.Until(next)) != nil {
			return
		}
	}
}

// keepPack fetches a pack of an execution, and reports it to the job's machine. The pack before is then removed. A pack
// that cannot be kept costs the provider nothing but a line in the job's trace.
func (x *Programs) keepPack(ctx context.Context, f *following, l *leases.Lease, p *nodepb.Pack) {
	i, j := int(f.exec.Rank), x.Peek()
	room := min(l.Disk(), diskOf(j.Spec)) - inputsOf(j, i)
	file, err := x.cfg.Executions.Pack(ctx, run.On(l, f.exec.Seq), l, p, room, x.cfg.Packs)
	if err == nil {
		err = x.keep(ctx, f.exec, p.Number, file)
	} else if file.CID != "" {
		x.cfg.drop(file.CID)
	}
	if ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil || errors.Is(err, executions.ErrPack) {
		f.packs.done = p
	}
	if err != nil {
		x.complainLocked(f, l, fmt.Sprintf("checkpoint %d is not kept: %s", p.GetNumber(), record.Clean(err.Error())))
	}
}

// errRemoved is returned for a pack that was removed with that of another rank. It is fetched again.
var errRemoved = errors.New("the pack was removed meanwhile")

// keep journals a pack that is here, and removes the one before.
func (x *Programs) keep(ctx context.Context, e jobs.Exec, number uint64, file jobs.File) error {
	x.cfg.keeping.Lock()
	defer x.cfg.keeping.Unlock()
	if c, err := cid.Parse(file.CID); err != nil || !x.cfg.Packs.Has(c) {
		return errRemoved
	}
	var before []record.Checkpoint
	if r := x.Peek().Ranks; int(e.Rank) < len(r) {
		before = r[e.Rank].Checkpoints
	}
	if len(before) > 0 && before[0].CID == file.CID {
		return nil
	}
	if _, err := x.Ask(ctx, run.Event{Ev: jobs.CheckpointKept{Exec: e, Number: number, File: file}}); err != nil {
		return err
	}
	unused := []string{file.CID} // unless the machine took it
	for _, c := range before {
		unused = append(unused, c.CID)
	}
	x.cfg.drop(unused...)
	return nil
}

// drop removes blobs, unless this peer needs them.
func (c *Config) drop(all ...string) {
	var ids []cid.Cid
	for _, text := range all {
		if id, err := cid.Parse(text); err == nil {
			ids = append(ids, id)
		}
	}
	c.Files.Drop(ids...)
}

// lastPack fetches the newest pack of a program that has ended, unless the job needs it no more.
func (x *Programs) lastPack(f *following, l *leases.Lease, ex *nodepb.Execution) {
	st, err := x.State()
	well := ex.ExitCode == 0 && ex.Reason == "" && ex.State == nodepb.ExecState_EXEC_STATE_EXITED
	if n := len(ex.Packs); err != nil || n == 0 || x.Peek().Spec.Checkpoint == nil || well && st.Phase < jobs.Stopping {
		return
	}
	p := ex.Packs[len(ex.Packs)-1]
	x.mu.Lock()
	done := proto.Equal(p, f.packs.done)
	x.mu.Unlock()
	if !done {
		ctx, cancel := context.WithTimeout(f.ctx, lastTime)
		defer cancel()
		x.keepPack(ctx, f, l, p)
	}
}

// resume makes a program continue from the first of its checkpoints that this peer has. If it has none, the program
// begins anew.
func (x *Programs) resume(f *following, l *leases.Lease, w *nodepb.Workload, from []jobs.Checkpoint) error {
	if w.Checkpoint == nil || len(from) == 0 {
		return nil
	}
	i := int(f.exec.Rank)
	say := func(step trace.Step) {
		// A program of an earlier process runs on.
		if st, err := x.State(); err == nil && i < len(st.Ranks) && !st.Ranks[i].Adopted {
			x.Trace.Add(step)
		}
	}
	step := trace.Step{At: time.Now(), Kind: trace.Restored, Rank: &i, Provider: l.Core.Provider.String()}
	for _, k := range from {
		file := k.File
		if c, err := cid.Parse(file.CID); err != nil || !x.cfg.Packs.Has(c) {
			continue
		}
		step.Detail = fmt.Sprintf("execution %d continues from checkpoint %d, %d bytes", f.exec.Seq, k.Number,
			file.Bytes)
		say(step)
		return record.Continue(w, record.Blob{CID: file.CID, Size: file.Bytes, Tree: true})
	}
	step.Detail = "this peer has no checkpoint of the rank: the program begins anew"
	say(step)
	return nil
}

// diskOf returns the disk in bytes that each rank of a job has at least.
func diskOf(j job.Job) int64 {
	return int64(j.MinPerUnit().DiskMiB) * int64(j.Resources.Units) << 20
}

// inputsOf returns the known bytes of the inputs of a rank, which share its disk with the checkpoint.
func inputsOf(j record.Job, rank int) (sum int64) {
	for _, in := range j.Spec.Inputs {
		sum += min(max(j.Spec.Blobs[in.For(rank)].Size, 0), maxInput)
	}
	if j.Carry != nil {
		sum += min(max(j.Carry.Size, 0), maxInput)
	}
	return sum
}
