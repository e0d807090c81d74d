package workload_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// A checkpoint has a directory of its own, in which there may be a tree to continue from.
func TestCheckCheckpoint(t *testing.T) {
	t.Parallel()
	h := workload.Host{Runtimes: map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", nil)}}
	file := &nodepb.Blob{Cid: blob.Sum([]byte("x")).Bytes()}
	tree := &nodepb.Blob{Cid: file.Cid, Tree: true}
	at := func(path string, millis uint64, change func(w *nodepb.Workload)) *nodepb.Workload {
		w := &nodepb.Workload{
			Runtime: "wasm", Module: file, Checkpoint: &nodepb.Checkpoint{Path: path, EveryMillis: millis},
		}
		if change != nil {
			change(w)
		}
		return w
	}
	inputs := func(all ...*nodepb.Input) func(w *nodepb.Workload) {
		return func(w *nodepb.Workload) { w.Inputs = all }
	}
	from := &nodepb.Input{Path: "/ckpt", Blob: tree}
	for name, w := range map[string]*nodepb.Workload{
		"alone":   at("/ckpt", 1000, nil),
		"resumed": at("/ckpt", 24*3600*1000, inputs(&nodepb.Input{Path: "/data", Blob: tree}, from)),
		"deep":    at("/data/ckpt", 1000, func(w *nodepb.Workload) { w.Outputs = []string{"/data/out"} }),
	} {
		if err := workload.Check(w, h); err != nil || !workload.Writes(w) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, w := range map[string]*nodepb.Workload{
		"relative":    at("ckpt", 1000, nil),
		"unclean":     at("/a/../ckpt", 1000, nil),
		"the runtime": at("/run/starling/x", 1000, nil),
		"too often":   at("/ckpt", 999, nil),
		"never":       at("/ckpt", 24*3600*1000+1, nil),
		"an output":   at("/ckpt", 1000, func(w *nodepb.Workload) { w.Outputs = []string{"/ckpt/out"} }),
		"in outputs":  at("/out/ckpt", 1000, func(w *nodepb.Workload) { w.Outputs = []string{"/out"} }),
		"the scratch": at("/scratch", 1000, func(w *nodepb.Workload) { w.Scratch = "/scratch" }),
		"an input":    at("/ckpt", 1000, inputs(&nodepb.Input{Path: "/ckpt/a/b", Blob: tree})),
		"a file":      at("/a/ckpt", 1000, inputs(&nodepb.Input{Path: "/a/ckpt", Blob: file})),
		"two trees":   at("/ckpt", 1000, inputs(from, from)),
		"a seed":      at("/ckpt", 1000, func(w *nodepb.Workload) { w.Seed = 1 }),
		"a volume": at("/ckpt", 1000, func(w *nodepb.Workload) {
			w.Volumes = []*nodepb.VolumeMount{{Lease: make([]byte, 32), Path: "/ckpt/v"}}
		}),
	} {
		if err := workload.Check(w, h); !errors.Is(err, workload.ErrWorkload) {
			t.Errorf("%s: %v, want ErrWorkload", name, err)
		}
	}
}
