package workload

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/deterministic"
)

// Digest is the output in a provider's final receipt. For a deterministic workload that exited by itself, it covers the
// work and its result; for any other, its outputs, and it is zero if there are none.
func Digest(w *nodepb.Workload, e *nodepb.Execution) sign.Hash {
	if work, err := Work(w); err == nil {
		if e.Reason != "" { // it was ended, and has no result
			return sign.Hash{}
		}
		r, err := Result(w, e.ExitCode, e.Outputs)
		if err != nil {
			return sign.Hash{}
		}
		return work.Output(r)
	}
	if len(e.Outputs) == 0 {
		return sign.Hash{}
	}
	parts := [][]byte{[]byte("starling/output/v1")}
	for _, o := range e.Outputs {
		parts = append(parts, o.Blob.Cid)
	}
	return sign.Sum(bytes.Join(parts, nil))
}

// Work returns the input of a deterministic workload: all data that its result depends on. It returns an error if the
// workload is not deterministic: it has no seed, or its limits are the lease's.
func Work(w *nodepb.Workload) (deterministic.Work, error) {
	if w.Image != "" || len(w.Sealed) > 0 {
		return deterministic.Work{}, Bad("a container, or a program with secrets, is not deterministic")
	}
	out := deterministic.Work{
		Seed: w.Seed, MemoryMiB: w.MemoryMib, DiskMiB: w.DiskMib, Args: w.Args, Outputs: w.Outputs,
	}
	var err error
	if out.Program, err = content(w.Module); err != nil {
		return out, fmt.Errorf("module: %w", err)
	}
	for _, k := range slices.Sorted(maps.Keys(w.Env)) {
		out.Env = append(out.Env, deterministic.Variable{Name: k, Value: w.Env[k]})
	}
	for _, in := range w.Inputs {
		c, err := content(in.Blob)
		if err != nil {
			return out, fmt.Errorf("input %s: %w", in.Path, err)
		}
		out.Inputs = append(out.Inputs, deterministic.Input{Path: in.Path, Tree: in.Blob.Tree, Content: c})
	}
	return out, out.Check()
}

// Result is the outputs of an execution. An error if it left others than its workload names.
func Result(w *nodepb.Workload, exit int32, outs []*nodepb.Output) (deterministic.Result, error) {
	r := deterministic.Result{Exit: exit}
	if len(outs) != len(w.Outputs) {
		return r, fmt.Errorf("%d outputs, want %d", len(outs), len(w.Outputs))
	}
	for i, o := range outs {
		c, err := content(o.Blob)
		if err != nil || o.Path != w.Outputs[i] {
			return r, fmt.Errorf("output %s is not %s, or has no digest: %w", o.Path, w.Outputs[i], err)
		}
		r.Trees = append(r.Trees, c)
	}
	return r, nil
}

// content is the SHA-256 that names a blob.
func content(b *nodepb.Blob) (sign.Hash, error) {
	c, err := CID(b)
	if err != nil {
		return sign.Hash{}, err
	}
	return Content(c)
}

// Content is the SHA-256 of the content that a digest of this network names.
func Content(c cid.Cid) (h sign.Hash, err error) {
	d, err := multihash.Decode(c.Hash())
	if err != nil || len(d.Digest) != len(h) {
		return h, fmt.Errorf("%s is no SHA-256: %w", c, err)
	}
	copy(h[:], d.Digest)
	return h, nil
}

// CIDOf is the digest by which this network names content of a SHA-256.
func CIDOf(h sign.Hash) (cid.Cid, error) {
	mh, err := multihash.Encode(h[:], multihash.SHA2_256)
	return cid.NewCidV1(cid.Raw, mh), err
}
