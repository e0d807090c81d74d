package wasm

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof/rerun"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/mount"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/verify/deterministic"
)

// What a seeded program can see is the same on two machines that differ in everything that it must not depend on: where
// its directories are, in what order, when and how its inputs came there, who owns them, how many CPUs it is given.
func TestTwoMachines(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	files := map[string]string{"a": "one", "b": "two", "sub": ""}
	machine := func(order []string, place func(host, content string), cpu uint32) string {
		dir := t.TempDir()
		in := filepath.Join(dir, "in")
		if err := os.Mkdir(in, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range order {
			if files[name] == "" {
				if err := os.Mkdir(filepath.Join(in, name), 0o700); err != nil {
					t.Fatal(err)
				}
				continue
			}
			place(filepath.Join(in, name), files[name])
		}
		r := newRuntime(t, time.Minute)
		h, err := r.Start(t.Context(), runtime.Spec{
			ID: "machine", Module: module, Args: []string{"random", "/in"}, Mounts: []runtime.Mount{{Host: in, Guest: "/in", ReadOnly: true}},
			Limits: runtime.Limits{MemoryMiB: 64, DiskMiB: 16, MilliCPU: cpu}, Dir: filepath.Join(dir, "run"), Seed: 11,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Destroy(t.Context(), h)
		exit, err := r.Wait(t.Context(), h)
		if err != nil || !exit.OK() {
			t.Fatalf("%+v, %v", exit, err)
		}
		log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		b, err := io.ReadAll(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + seen(t, in)
	}
	store := t.TempDir()
	linked := machine([]string{"b", "sub", "a"}, func(host, content string) { // as a provider with its store on the same disk
		src := filepath.Join(store, content)
		if err := os.WriteFile(src, []byte(content), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(src, host); err != nil {
			t.Fatal(err)
		}
	}, 1000)
	copied := machine([]string{"a", "b", "sub"}, func(host, content string) {
		if err := os.WriteFile(host, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(host, time.Unix(1, 0), time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
	}, 500)
	if linked != copied {
		t.Errorf("one machine shows\n%sthe other\n%s", linked, copied)
	}
}

// seen returns all that WASI shows of files, in the order in which a program would ask.
func seen(t *testing.T, dir string) string {
	t.Helper()
	q := mount.NewQuota(0, nil)
	q.Same(seededEpoch)
	m, err := q.Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, name := range []string{"", "a", "b", "sub"} {
		st, e := m.Stat(name)
		if e != 0 {
			t.Fatal(e)
		}
		text += fmt.Sprintln(name, st.Dev, st.Ino, st.Mode.Type(), st.Nlink, st.Size, st.Atim, st.Mtim, st.Ctim)
	}
	f, e := m.OpenFile("", 0, 0)
	if e != 0 {
		t.Fatal(e)
	}
	entries, e := f.Readdir(-1)
	if e != 0 {
		t.Fatal(e)
	}
	return text + fmt.Sprintln(entries)
}

// A work that is run again from a proof's description gives the same digests on every machine, and others for another
// work.
func TestRerun(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	run := func(seed uint64, content string) deterministic.Result {
		w := deterministic.Work{
			Seed: seed, MemoryMiB: 64, DiskMiB: 16, Program: sign.Sum(code), Args: []string{"copy", "/in/data", "/out/data"}, Outputs: []string{"/out"},
			Env: []deterministic.Variable{{Name: "A", Value: "1"}}, Inputs: []deterministic.Input{{Path: "/in/data", Content: sign.Sum([]byte(content))}},
		}
		f := rerun.Files{Program: module, Inputs: map[string]string{"/in/data": write(t, "data", []byte(content))}}
		r, err := rerun.Work(t.Context(), newRuntime(t, time.Minute), w, f, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := run(7, "one")
	if len(first.Trees) != 1 || first.Exit != 0 || !first.Equal(run(7, "one")) {
		t.Errorf("%+v, and again something else", first)
	}
	if first.Equal(run(7, "two")) {
		t.Error("another input has the same result")
	}
}

// A seeded run sees the canonical NaN, whatever its processor makes of 0/0: on amd64 that is another.
func TestAttackNaNOfARun(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	r := newRuntime(t, time.Minute)
	h := start(t, r, runtime.Spec{Module: module, Args: []string{"nan", "0"}, Limits: runtime.Limits{MemoryMiB: 64, DiskMiB: 16}, Dir: t.TempDir(), Seed: 7})
	defer r.Destroy(t.Context(), h)
	exit := wait(t, r, h)
	log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b, err := io.ReadAll(log)
	if err != nil || !exit.OK() {
		t.Fatalf("%+v, %v", exit, err)
	}
	if string(b) != "7ff8000000000000\n" {
		t.Errorf("0/0 is %s", b)
	}
}

// A seeded program has no control directory, in which a request to stop would show; others have.
func TestSeededProgramIsNotAsked(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	r := newRuntime(t, time.Minute)
	for _, seed := range []uint64{0, 7} {
		h := start(t, r, runtime.Spec{
			Module: module, Args: []string{"random", runtime.ControlDir}, Dir: t.TempDir(), Seed: seed,
			Limits: runtime.Limits{MemoryMiB: 64, DiskMiB: 16},
		})
		defer r.Destroy(t.Context(), h)
		if exit := wait(t, r, h); exit.OK() != (seed == 0) {
			t.Errorf("seed %d: listing %s: %+v", seed, runtime.ControlDir, exit)
		}
	}
}

// A buyer asks a replicated program to stop, by which it might leave another result than whoever runs it again. It sees
// nothing of that, is ended, and its provider signs no result.
func TestAttackStopFileMakesFalseResult(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, err := blob.OpenStore(filepath.Join(dir, "blobs"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	c, err := workload.CIDOf(sign.Sum(code))
	if err != nil {
		t.Fatal(err)
	}
	w := &nodepb.Workload{Seed: 7, MemoryMib: 64, DiskMib: 16, Args: []string{"resign", "1000", "/out/asked"}, Outputs: []string{"/out"},
		Module: &nodepb.Blob{Cid: c.Bytes(), Size: uint64(len(code))}}
	work, err := workload.Work(w)
	if err != nil {
		t.Fatal(err)
	}
	// As node/provider does it.
	st := workload.Stage{Dir: filepath.Join(dir, "stage")}
	mounts, err := st.Prepare(t.Context(), w, "", store, nil, 16<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, time.Minute)
	h := start(t, r, runtime.Spec{Module: module, Args: w.Args, Mounts: mounts, Limits: runtime.Limits{MemoryMiB: 64, DiskMiB: 16}, Dir: st.Run(), Seed: w.Seed})
	defer r.Destroy(t.Context(), h)
	if err := r.Stop(t.Context(), h, time.Hour); err != nil {
		t.Fatal(err)
	}
	exit := wait(t, r, h)
	outs, err := st.Collect(t.Context(), w.Outputs, store, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	signed := workload.Digest(w, &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED, ExitCode: int32(exit.Code), Reason: string(exit.Reason), Outputs: outs})
	again, err := rerun.Work(t.Context(), r, work, rerun.Files{Program: module}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if right := work.Output(again); !signed.IsZero() && signed != right {
		t.Errorf("the provider signs %s, whoever runs it again finds %s; it ended with %+v", signed.Short(), right.Short(), exit)
	}
}
