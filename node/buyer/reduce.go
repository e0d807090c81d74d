package buyer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
)

// reduceLimits bound the reduce step, which runs on the user's own machine.
var reduceLimits = runtime.Limits{MemoryMiB: 2048, DiskMiB: 4096, WallTime: time.Hour}

// reduce runs the job's reduce program here: it finds what each rank left at
// /in/<rank>, and its /out is the next round's carry.
func (s *supervisor) reduce(ctx context.Context, j Job) (Blob, error) {
	red := j.Spec.Rounds.Reduce
	rt := s.b.cfg.Runtimes[job.RuntimeWasm] // whatever the ranks run in
	w, err := record.ReduceWorkload(j)
	if err != nil {
		return Blob{}, failed(CodeInput, "reduce: %v", err)
	}
	module, err := cid.Parse(j.Spec.Blobs[red.Module].CID)
	if err != nil {
		return Blob{}, failed(CodeInput, "reduce: %v", err)
	}
	program, err := s.b.cfg.Blobs.Path(module)
	if err != nil {
		return Blob{}, failed(CodeInput, "reduce: %v", err)
	}
	dir, err := s.reduceDir(j.ID)
	if err != nil {
		return Blob{}, err
	}
	st := work.Stage{Dir: dir}
	defer st.Remove()
	here := func(context.Context, peer.ID, cid.Cid, int64) error { return nil } // all of it was fetched already
	mounts, err := st.Prepare(ctx, w, "", s.b.cfg.Blobs, here, int64(reduceLimits.DiskMiB)<<20, nil)
	if err != nil {
		return Blob{}, failed(CodeInput, "reduce: %v", err)
	}
	h, err := rt.Start(ctx, runtime.Spec{ID: j.ID + "-reduce", Module: program, Args: red.Args, Env: w.Env,
		Mounts: mounts, Limits: reduceLimits, Dir: st.Run()})
	if err != nil {
		return Blob{}, failed(CodeProgram, "reduce: %v", err)
	}
	defer rt.Destroy(context.WithoutCancel(ctx), h)
	exit, err := rt.Wait(ctx, h)
	if err != nil {
		return Blob{}, err
	}
	s.copyReduceLog(ctx, rt, h)
	if !exit.OK() {
		return Blob{}, failed(CodeProgram,
			"reduce of round %d ended with exit code %d %s; `starling logs` shows what it said",
			j.Round, exit.Code, exit.Reason)
	}
	outs, err := st.Collect(ctx, w.Outputs, s.b.cfg.Blobs, int64(reduceLimits.DiskMiB)<<20)
	if err != nil {
		return Blob{}, err
	}
	c, err := work.CID(outs[0].Blob)
	if err != nil {
		return Blob{}, err
	}
	return Blob{CID: c.String(), Size: int64(outs[0].Blob.Size), Tree: true}, nil
}

// reduceDir is a fresh directory: the program of an earlier process may still be
// running in its own, without anybody to take it over.
func (s *supervisor) reduceDir(id string) (string, error) {
	old, err := filepath.Glob(filepath.Join(s.b.jobDir(id), "reduce-*"))
	for _, d := range old {
		err = errors.Join(err, work.Stage{Dir: d}.Remove())
	}
	if err != nil {
		return "", fmt.Errorf("clearing the reduce directory: %w", err)
	}
	dir, err := os.MkdirTemp(s.b.jobDir(id), "reduce-")
	if err != nil {
		return "", fmt.Errorf("making the reduce directory: %w", err)
	}
	return dir, nil
}

// copyReduceLog adds the reduce program's output to the job's log, under rank 0.
func (s *supervisor) copyReduceLog(ctx context.Context, rt runtime.Runtime, h runtime.Handle) {
	l, ok := rt.(runtime.Logger)
	if !ok {
		return
	}
	for stream, id := range map[runtime.Stream]byte{runtime.Stdout: StreamStdout, runtime.Stderr: StreamStderr} {
		r, err := l.Logs(ctx, h, stream, 0)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(r, ranklog.MaxFrame))
		r.Close()
		if err == nil {
			_ = s.logs[0].Append(id, b)
		}
	}
}
