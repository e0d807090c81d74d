package deterministic

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

func drawWork(t *rapid.T) Work {
	text := rapid.StringN(0, 20, 60)
	w := Work{Seed: rapid.Uint64Min(1).Draw(t, "seed"), MemoryMiB: rapid.Uint32Min(1).Draw(t, "memory"), DiskMiB: rapid.Uint32Min(1).Draw(t, "disk"),
		Program: sign.Sum([]byte(text.Draw(t, "program"))), Args: rapid.SliceOfN(text, 0, 5).Draw(t, "args")}
	for _, k := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Z]{1,6}`), 0, 4, rapid.ID[string]).Draw(t, "env"))) {
		w.Env = append(w.Env, Variable{Name: k, Value: text.Draw(t, "value")})
	}
	path := rapid.StringMatching(`(/[a-z]{1,5}){1,3}`)
	for range rapid.IntRange(0, 3).Draw(t, "inputs") {
		w.Inputs = append(w.Inputs, Input{Path: path.Draw(t, "input"), Tree: rapid.Bool().Draw(t, "tree"), Content: sign.Sum([]byte(text.Draw(t, "content")))})
	}
	w.Outputs = rapid.SliceOfN(path, 1, 4).Draw(t, "outputs")
	return w
}

// What is written is read the same, and no two works have one hash.
func TestWorkCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWork(t)
		got, err := UnmarshalWork(w.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if got.Hash() != w.Hash() || len(w.Marshal()) != w.size() {
			t.Fatal("another work")
		}
		o := drawWork(t)
		if o.Hash() == w.Hash() && !bytes.Equal(o.Marshal(), w.Marshal()) {
			t.Fatal("two works of one hash")
		}
	})
}

// A result is read as it was written, has the size that is announced, and is bound to its work.
func TestResultCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Result{Exit: rapid.Int32().Draw(t, "exit")}
		for i := range rapid.IntRange(0, MaxOutputs).Draw(t, "outputs") {
			r.Trees = append(r.Trees, sign.Hash{byte(i)})
		}
		b := r.Marshal()
		if got, err := UnmarshalResult(b); err != nil || !got.Equal(r) || len(b) != ResultSize(len(r.Trees)) || len(b) > MaxResult {
			t.Fatalf("%+v came back as %+v in %d bytes, %v", r, got, len(b), err)
		}
		if _, err := UnmarshalResult(append(b, 0)); !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("a byte more: %v", err)
		}
		if _, err := UnmarshalResult(b[:len(b)-1]); !errors.Is(err, market.ErrMalformed) {
			t.Fatalf("a byte less: %v", err)
		}
		if (Work{Seed: 1}).Output(r) == (Work{Seed: 2}).Output(r) {
			t.Fatal("two works with one output")
		}
	})
}

// A work whose result is not determined, or whose layout has two forms, is refused.
func TestWorkRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Work){
		"no seed":        func(w *Work) { w.Seed = 0 },
		"no memory":      func(w *Work) { w.MemoryMiB = 0 },
		"no disk":        func(w *Work) { w.DiskMiB = 0 },
		"no output":      func(w *Work) { w.Outputs = nil },
		"outputs":        func(w *Work) { w.Outputs = slices.Repeat([]string{"/out"}, MaxOutputs+1) },
		"output's path":  func(w *Work) { w.Outputs = []string{"/a/../b"} },
		"root":           func(w *Work) { w.Outputs = []string{"/"} },
		"input's path":   func(w *Work) { w.Inputs = []Input{{Path: "in"}} },
		"order":          func(w *Work) { w.Env = []Variable{{Name: "B"}, {Name: "A"}} },
		"variable twice": func(w *Work) { w.Env = []Variable{{Name: "A"}, {Name: "A"}} },
		"no name":        func(w *Work) { w.Env = []Variable{{}} },
		"arguments":      func(w *Work) { w.Args = make([]string, MaxArgs+1) },
		"bytes":          func(w *Work) { w.Args = []string{strings.Repeat("x", MaxWork)} },
	} {
		w := Work{Seed: 1, MemoryMiB: 1, DiskMiB: 1, Outputs: []string{"/out"}}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		change(&w)
		if err := w.Check(); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
		if _, err := UnmarshalWork(w.Marshal()); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s as a layout: %v, want ErrMalformed", name, err)
		}
	}
}

func FuzzUnmarshalWork(f *testing.F) {
	f.Add(Work{Seed: 1, MemoryMiB: 1, DiskMiB: 1, Args: []string{"-n"}, Env: []Variable{{Name: "A", Value: "1"}},
		Inputs: []Input{{Path: "/in", Tree: true}}, Outputs: []string{"/out"}}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := UnmarshalWork(b)
		if err == nil && !bytes.Equal(w.Marshal(), b) {
			t.Fatalf("%x came back as %x", b, w.Marshal())
		}
	})
}
