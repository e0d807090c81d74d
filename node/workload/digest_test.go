package workload

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
)

func blobOf(t *testing.T, text string) *nodepb.Blob {
	t.Helper()
	c, err := CIDOf(sign.Sum([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := Content(c); err != nil || h != sign.Sum([]byte(text)) {
		t.Fatalf("%v, %v", h, err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: 5, Tree: true}
}

// What a provider signs for a deterministic workload changes with everything that the result depends on, and with nothing else.
func TestDigest(t *testing.T) {
	t.Parallel()
	w := &nodepb.Workload{
		Runtime: "wasm", Module: blobOf(t, "module"), Args: []string{"a"}, Env: map[string]string{"B": "2", "A": "1"}, Seed: 7, MemoryMib: 64, DiskMib: 16,
		Inputs: []*nodepb.Input{{Blob: blobOf(t, "input"), Path: "/in"}}, Outputs: []string{"/out", "/more"},
	}
	e := &nodepb.Execution{Outputs: []*nodepb.Output{{Path: "/out", Blob: blobOf(t, "x")}, {Path: "/more", Blob: blobOf(t, "y")}}}
	work, err := Work(w)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Result(w, e.ExitCode, e.Outputs)
	if err != nil {
		t.Fatal(err)
	}
	first := Digest(w, e)
	if first != work.Output(r) {
		t.Error("not the work's output")
	}
	for name, change := range map[string]func(*nodepb.Workload, *nodepb.Execution){
		"module": func(w *nodepb.Workload, _ *nodepb.Execution) { w.Module = blobOf(t, "other") },
		"args":   func(w *nodepb.Workload, _ *nodepb.Execution) { w.Args = []string{"b"} },
		"env":    func(w *nodepb.Workload, _ *nodepb.Execution) { w.Env["A"] = "3" },
		"input":  func(w *nodepb.Workload, _ *nodepb.Execution) { w.Inputs[0].Blob = blobOf(t, "other") },
		"path":   func(w *nodepb.Workload, _ *nodepb.Execution) { w.Inputs[0].Path = "/in2" },
		"seed":   func(w *nodepb.Workload, _ *nodepb.Execution) { w.Seed++ },
		"memory": func(w *nodepb.Workload, _ *nodepb.Execution) { w.MemoryMib++ },
		"disk":   func(w *nodepb.Workload, _ *nodepb.Execution) { w.DiskMib++ },
		"output": func(_ *nodepb.Workload, e *nodepb.Execution) { e.Outputs[0].Blob = blobOf(t, "other") },
		"order": func(_ *nodepb.Workload, e *nodepb.Execution) {
			e.Outputs[0].Blob, e.Outputs[1].Blob = e.Outputs[1].Blob, e.Outputs[0].Blob
		},
		"exit":   func(_ *nodepb.Workload, e *nodepb.Execution) { e.ExitCode = 1 },
		"killed": func(_ *nodepb.Workload, e *nodepb.Execution) { e.Reason = "timeout" },
		"fewer":  func(_ *nodepb.Workload, e *nodepb.Execution) { e.Outputs = e.Outputs[:1] },
		"others": func(_ *nodepb.Workload, e *nodepb.Execution) { e.Outputs[1].Path = "/elsewhere" },
	} {
		w, e := proto.Clone(w).(*nodepb.Workload), proto.Clone(e).(*nodepb.Execution)
		change(w, e)
		if Digest(w, e) == first {
			t.Errorf("%s does not matter", name)
		}
	}
	for name, change := range map[string]func(*nodepb.Workload){
		"time it may keep": func(w *nodepb.Workload) { w.KeepMillis = 5 }, "time to pull": func(w *nodepb.Workload) { w.PullMillis = 5 },
		"time to run": func(w *nodepb.Workload) { w.WallMillis = 5 }, "what is said of sizes": func(w *nodepb.Workload) { w.Module.Size = 9 },
	} {
		w := proto.Clone(w).(*nodepb.Workload)
		change(w)
		if Digest(w, e) != first {
			t.Errorf("%s matters", name)
		}
	}
	w.Seed = 0
	if d := Digest(w, e); d == first || d.IsZero() {
		t.Error("without a seed it is another digest")
	}
	if !Digest(w, &nodepb.Execution{}).IsZero() {
		t.Error("nothing has a digest")
	}
}
