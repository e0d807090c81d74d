// Package rerun runs the work of a dispute again, which shows which result is false.
package rerun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/verify/deterministic"
)

// ErrFiles means that the given files are not those of the work.
var ErrFiles = errors.New("not the files of the evidence")

// maxRerun bounds the disk of a second run of a work, bytes.
const maxRerun = 64 << 30

// Files are the files that a work reads, as this machine has them.
type Files struct {
	Program string
	Inputs  map[string]string // file or directory by the program's path
}

// Work runs a work again in rt, on files that are held against the work's digests, in a directory that must be new
// or empty and is the caller's to remove. ErrFiles.
func Work(
	ctx context.Context, rt runtime.Runtime, w deterministic.Work, f Files, dir string,
) (deterministic.Result, error) {
	var none deterministic.Result
	if err := w.Check(); err != nil {
		return none, err
	}
	for at := range f.Inputs {
		if !hasInput(w, at) {
			return none, fmt.Errorf("%w: the work has no input %s", ErrFiles, at)
		}
	}
	store, err := blob.OpenStore(filepath.Join(dir, "blobs"), maxRerun)
	if err != nil {
		return none, err
	}
	program, err := put(ctx, store, f.Program, false, w.Program)
	if err != nil {
		return none, fmt.Errorf("program: %w", err)
	}
	pb := &nodepb.Workload{Outputs: w.Outputs}
	for _, in := range w.Inputs {
		c, err := put(ctx, store, f.Inputs[in.Path], in.Tree, in.Content)
		if err != nil {
			return none, fmt.Errorf("input %s: %w", in.Path, err)
		}
		pb.Inputs = append(pb.Inputs, &nodepb.Input{Path: in.Path, Blob: &nodepb.Blob{Cid: c.Bytes(), Tree: in.Tree}})
	}
	st := workload.Stage{Dir: filepath.Join(dir, "stage")}
	here := func(context.Context, workload.Places, cid.Cid, int64) error { return nil }
	mounts, err := st.Prepare(ctx, pb, "", store, here, int64(w.DiskMiB)<<20, nil)
	if err != nil {
		return none, err
	}
	spec := runtime.Spec{
		ID: "again", Args: w.Args, Env: map[string]string{}, Mounts: mounts,
		Limits: runtime.Limits{MemoryMiB: w.MemoryMiB, DiskMiB: w.DiskMiB},
		Dir:    st.Run(), Seed: w.Seed,
	}
	for _, v := range w.Env {
		spec.Env[v.Name] = v.Value
	}
	if spec.Module, err = store.Path(program); err != nil {
		return none, err
	}
	h, err := rt.Start(ctx, spec)
	if err != nil {
		return none, fmt.Errorf("running it again: %w", err)
	}
	defer rt.Destroy(context.WithoutCancel(ctx), h)
	exit, err := rt.Wait(ctx, h)
	if err != nil {
		return none, fmt.Errorf("running it again: %w", err)
	}
	if exit.Reason != runtime.ReasonNone {
		return none, fmt.Errorf("running it again: the program was ended: %s", exit.Reason)
	}
	outs, err := st.Collect(ctx, w.Outputs, store, int64(w.DiskMiB)<<20)
	if err != nil {
		return none, err
	}
	return workload.Result(pb, int32(exit.Code), outs)
}

func hasInput(w deterministic.Work, at string) bool {
	for _, in := range w.Inputs {
		if in.Path == at {
			return true
		}
	}
	return false
}

// put stores a file, or a directory as its archive. The digest must be want.
func put(ctx context.Context, store *blob.Store, path string, tree bool, want sign.Hash) (cid.Cid, error) {
	if path == "" {
		return cid.Undef, fmt.Errorf("%w: file missing: want one with SHA-256 %s", ErrFiles, want)
	}
	f, err := os.Open(path)
	if err != nil {
		return cid.Undef, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return cid.Undef, err
	}
	var c cid.Cid
	if tree && info.IsDir() {
		var t blob.Tree
		t, err = store.PutTree(ctx, path, maxRerun)
		c = t.CID
	} else {
		c, _, err = store.Put(ctx, f)
	}
	if err != nil {
		return cid.Undef, err
	}
	if got, err := workload.Content(c); err != nil || got != want {
		return cid.Undef, fmt.Errorf("%w: %s has SHA-256 %s, want %s", ErrFiles, path, got, want)
	}
	return c, nil
}
