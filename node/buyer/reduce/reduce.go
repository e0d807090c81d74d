// Package reduce runs the reduce program of a job's round on the buyer's own machine: it finds the output of each rank
// at /in/<rank>, and the directory that it fills is the carry of the next round.
package reduce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
)

// limits bound the program, which runs on the user's own machine.
var limits = runtime.Limits{MemoryMiB: 2048, DiskMiB: 4096, WallTime: time.Hour}

// Error is a failure that is the job's own, and ends it: CodeInput or CodeProgram.
type Error struct {
	Code   jobs.Code
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func failed(code jobs.Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// Reducer runs reduce programs.
type Reducer struct {
	Runtime runtime.Runtime // for modules, independent of the ranks' runtime
	Blobs   work.Blobs
}

// Run runs the reduce program of a job's round in a directory below dir, and returns the carry of the next round. The
// program's output is added to the log. It returns an *Error if the job is at fault.
func (r Reducer) Run(ctx context.Context, j record.Job, dir string, log *ranklog.Log) (record.Blob, error) {
	red := j.Spec.Rounds.Reduce
	w, err := record.ReduceWorkload(j)
	if err != nil {
		return record.Blob{}, failed(jobs.CodeInput, "reduce: %v", err)
	}
	module, err := cid.Parse(j.Spec.Blobs[red.Module].CID)
	if err != nil {
		return record.Blob{}, failed(jobs.CodeInput, "reduce: %v", err)
	}
	program, err := r.Blobs.Path(module)
	if err != nil {
		return record.Blob{}, failed(jobs.CodeInput, "reduce: %v", err)
	}
	if dir, err = fresh(dir); err != nil {
		return record.Blob{}, err
	}
	st := work.Stage{Dir: dir}
	defer st.Remove()
	here := func(context.Context, work.Places, cid.Cid, int64) error { return nil } // all of it was fetched already
	mounts, err := st.Prepare(ctx, w, "", r.Blobs, here, int64(limits.DiskMiB)<<20, nil)
	if err != nil {
		return record.Blob{}, failed(jobs.CodeInput, "reduce: %v", err)
	}
	h, err := r.Runtime.Start(ctx, runtime.Spec{
		ID: j.ID + "-reduce", Module: program, Args: red.Args, Env: w.Env, Mounts: mounts,
		Limits: limits, Dir: st.Run(),
	})
	if err != nil {
		return record.Blob{}, failed(jobs.CodeProgram, "reduce: %v", err)
	}
	defer r.Runtime.Destroy(context.WithoutCancel(ctx), h)
	exit, err := r.Runtime.Wait(ctx, h)
	if err != nil {
		return record.Blob{}, err
	}
	r.copyLog(ctx, h, log)
	if !exit.OK() {
		return record.Blob{}, failed(jobs.CodeProgram,
			"reduce of round %d ended with exit code %d %s; `starling logs` shows its output",
			j.Round, exit.Code, exit.Reason)
	}
	outs, err := st.Collect(ctx, w.Outputs, r.Blobs, int64(limits.DiskMiB)<<20)
	if err != nil {
		return record.Blob{}, err
	}
	c, err := work.CID(outs[0].Blob)
	if err != nil {
		return record.Blob{}, err
	}
	return record.Blob{CID: c.String(), Size: int64(outs[0].Blob.Size), Tree: true}, nil
}

// fresh returns a new directory below dir, because an abandoned program of an earlier process may still run in its own.
func fresh(dir string) (string, error) {
	old, err := filepath.Glob(filepath.Join(dir, "reduce-*"))
	for _, d := range old {
		err = errors.Join(err, work.Stage{Dir: d}.Remove())
	}
	if err != nil {
		return "", fmt.Errorf("clearing the reduce directory: %w", err)
	}
	made, err := os.MkdirTemp(dir, "reduce-")
	if err != nil {
		return "", fmt.Errorf("making the reduce directory: %w", err)
	}
	return made, nil
}

// copyLog adds the program's output to the job's log.
func (r Reducer) copyLog(ctx context.Context, h runtime.Handle, log *ranklog.Log) {
	l, ok := r.Runtime.(runtime.Logger)
	if !ok {
		return
	}
	for stream, id := range map[runtime.Stream]byte{
		runtime.Stdout: ranklog.StreamStdout, runtime.Stderr: ranklog.StreamStderr,
	} {
		r, err := l.Logs(ctx, h, stream, 0)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(r, ranklog.MaxFrame))
		r.Close()
		if err == nil {
			_ = log.Append(id, b)
		}
	}
}
