package reduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p/blob"
)

// sum is a reduce program: it writes the files of all ranks into one, and fails if one of them says so.
func sum(p guest.Process) int {
	fmt.Fprintln(p.Stdout(), "summing")
	var all []byte
	for rank := range 2 {
		b, err := guest.ReadFile(p, fmt.Sprintf("/in/%d/part", rank), 100)
		if err != nil {
			fmt.Fprintln(p.Stderr(), err)
			return 2
		}
		all = append(all, b...)
	}
	if bytes.Contains(all, []byte("bad")) {
		return 1
	}
	f, err := p.OpenFile("/out/sum", os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(all)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(p.Stderr(), err)
		return 2
	}
	return 0
}

// world is a peer whose runtime knows the program.
type world struct {
	t     *testing.T
	blobs *blob.Store
	dir   string
	log   *ranklog.Log
	r     Reducer
}

func newWorld(t *testing.T) *world {
	blobs, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, blobs: blobs, dir: t.TempDir()}
	if w.log, err = ranklog.Open(filepath.Join(w.dir, "rank-0.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.log.End)
	fake := runtimetest.NewFake("wasm", map[string]guest.Program{"sum": sum})
	t.Cleanup(func() { _ = fake.Close() })
	w.r = Reducer{Runtime: fake, Blobs: blobs}
	return w
}

// put stores a file, or a directory with the file part if it is a tree.
func (w *world) put(text string, tree bool) record.Blob {
	w.t.Helper()
	if !tree {
		c, n, err := w.blobs.Put(w.t.Context(), strings.NewReader(text))
		if err != nil {
			w.t.Fatal(err)
		}
		return record.Blob{CID: c.String(), Size: n}
	}
	dir := w.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "part"), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	c, err := w.blobs.PutTree(w.t.Context(), dir, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return record.Blob{CID: c.CID.String(), Size: c.Size, Tree: true}
}

// job is a job in its second round, whose ranks have left these files.
func (w *world) job(parts ...string) record.Job {
	j := record.Job{ID: "j1", Round: 1}
	j.Spec.Rounds = &job.Rounds{Count: 3, Carry: "/carry", Reduce: &job.Reduce{Module: "sum.wasm"}}
	j.Spec.Blobs = map[string]job.Blob{"sum.wasm": w.put(string(runtimetest.FakeModule("sum")), false).Source()}
	for _, p := range parts {
		j.Ranks = append(j.Ranks, record.Rank{Outputs: []record.Output{{Path: "/out", Blob: w.put(p, true)}}})
	}
	return j
}

// The carry of the next round is the directory that the program filled. Its log joins the job's, and nothing else stays.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := filepath.Join(w.dir, "reduce-stale")
	if err := os.Mkdir(stale, 0o700); err != nil { // of an earlier process
		t.Fatal(err)
	}
	got, err := w.r.Run(t.Context(), w.job("one ", "two"), w.dir, w.log)
	if err != nil || !got.Tree {
		t.Fatalf("%+v, %v", got, err)
	}
	c, err := cid.Parse(got.CID)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if _, err := w.blobs.Unpack(t.Context(), c, to, 1<<20); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "sum")); err != nil || string(b) != "one two" {
		t.Errorf("the carry has %q, %v", b, err)
	}
	if left, err := filepath.Glob(filepath.Join(w.dir, "reduce-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	var log bytes.Buffer
	w.log.End()
	if err := w.log.Copy(t.Context(), &log, ranklog.Query{}); err != nil || !strings.Contains(log.String(), "summing") {
		t.Errorf("the log is %q, %v", log.String(), err)
	}
}

// Faults of the job are told from those of the peer: the job ends by its own.
func TestRunFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parts  []string
		change func(w *world, j *record.Job)
		want   jobs.Code // 0: the peer's
	}{
		"exit code": {parts: []string{"one", "bad"}, want: jobs.CodeProgram},
		"no output": {
			[]string{"one", "two"}, func(_ *world, j *record.Job) { j.Ranks[1].Outputs = nil }, jobs.CodeInput,
		},
		"no module": {
			[]string{"one", "two"}, func(_ *world, j *record.Job) { j.Spec.Blobs = nil }, jobs.CodeInput,
		},
		"no program": {
			[]string{"one", "two"}, func(w *world, j *record.Job) {
				j.Spec.Blobs = map[string]job.Blob{"sum.wasm": w.put("text", false).Source()}
			}, jobs.CodeProgram,
		},
		"no directory": {
			[]string{"one", "two"}, func(w *world, _ *record.Job) { w.dir = filepath.Join(w.dir, "none") }, 0,
		},
	} {
		w := newWorld(t)
		j := w.job(c.parts...)
		if c.change != nil {
			c.change(w, &j)
		}
		_, err := w.r.Run(t.Context(), j, w.dir, w.log)
		var own *Error
		if err == nil || errors.As(err, &own) != (c.want != 0) || own != nil && own.Code != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.r.Run(ctx, w.job("one", "two"), w.dir, w.log); err == nil {
		t.Error("a job that was stopped is reduced")
	}
}
