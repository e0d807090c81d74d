package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm"
	"github.com/starling-network/starling/testnet/jobs/lm/corpus"
	"github.com/starling-network/starling/testnet/jobs/lm/model"
)

func TestMain(m *testing.M) {
	wasm.ChildMain()
	os.Exit(m.Run())
}

const (
	workers = 3
	rounds  = 2
	bits    = 16
)

func environment(round, rank int) map[string]string {
	return map[string]string{"STARLING_COUNT": strconv.Itoa(workers), "STARLING_RANK": strconv.Itoa(rank),
		"STARLING_ROUND": strconv.Itoa(round), "STARLING_ROUNDS": strconv.Itoa(rounds), "LM_BITS": strconv.Itoa(bits)}
}

// execute runs one part of the job with these directories in place of /data, /carry, …
type execute func(t *testing.T, command string, env map[string]string, dirs map[string]string)

func natively(t *testing.T, command string, env map[string]string, dirs map[string]string) {
	t.Helper()
	root := t.TempDir()
	for guest, host := range dirs {
		p := filepath.Join(root, guest)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(host, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{command}, func(k string) string { return env[k] }, io.Discard, root); err != nil {
		t.Fatal(err)
	}
}

func inSandbox(t *testing.T) execute {
	t.Helper()
	module := filepath.Join(t.TempDir(), "train.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, ".")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	r, err := wasm.New(wasm.Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, command string, env map[string]string, dirs map[string]string) {
		t.Helper()
		s := runtime.Spec{ID: "lm", Module: module, Args: []string{command}, Env: env, Dir: filepath.Join(t.TempDir(), "run"), Seed: 1}
		for guest, host := range dirs {
			s.Mounts = append(s.Mounts, runtime.Mount{Host: host, Guest: guest, ReadOnly: guest != "/out"})
		}
		h, err := r.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Destroy(context.WithoutCancel(t.Context()), h) }()
		if e, err := r.Wait(t.Context(), h); err != nil || !e.OK() {
			log, _ := os.ReadFile(filepath.Join(s.Dir, "stderr.log"))
			t.Fatalf("%+v, %v: %s", e, err, log)
		}
	}
}

// trainAll runs all rounds and returns the weights and the metrics after each.
func trainAll(t *testing.T, c corpus.Corpus, do execute) (weights [][]byte, bpb []float64) {
	t.Helper()
	dir := func(file string, b []byte) string {
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return d
	}
	carry, heldOut := t.TempDir(), dir("heldout.bin", c.HeldOut)
	for round := range rounds {
		in := map[string]string{"/carry": carry, "/data": heldOut, "/out": t.TempDir()}
		for rank, shard := range c.Shards {
			out := t.TempDir()
			do(t, "train", environment(round, rank), map[string]string{"/carry": carry, "/data": dir("shard.bin", shard), "/out": out})
			in[fmt.Sprintf("/in/%d", rank)] = out
		}
		do(t, "reduce", environment(round, 0), in)
		carry = in["/out"]
		w, err := os.ReadFile(filepath.Join(carry, "weights.bin"))
		if err != nil {
			t.Fatal(err)
		}
		var m metrics
		b, err := os.ReadFile(filepath.Join(carry, "metrics.json"))
		if err != nil || json.Unmarshal(b, &m) != nil || m.Round != round || m.Workers != workers {
			t.Fatalf("metrics %s: %v", b, err)
		}
		weights, bpb = append(weights, w), append(bpb, m.BitsPerByte)
	}
	return weights, bpb
}

// The job in small: native and sandboxed runs give the same bytes, the held-out figure falls, and it ends close to what one
// machine reaches with the same data.
func TestJob(t *testing.T) {
	t.Parallel()
	dir, err := corpus.Source(t.Context())
	if err != nil {
		t.Skip(err)
	}
	c, err := corpus.Build(dir, corpus.Config{Workers: workers, ShardBytes: 160_000, HeldOutBytes: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	native, bpb := trainAll(t, c, natively)
	single := model.New(bits)
	for round := range rounds {
		for _, s := range c.Shards {
			from, to := model.Slice(len(s), round, rounds)
			single.Train(s, from, to, nil)
		}
	}
	alone := single.Evaluate(c.HeldOut)
	t.Logf("bits per byte by round %v, one machine %.4f, orders %.4f", bpb, alone, corpus.Orders(c.Shards, c.HeldOut))
	if bpb[1] >= bpb[0] || bpb[1] > alone*1.02 {
		t.Errorf("bits per byte %v, one machine %f", bpb, alone)
	}
	sandboxed, sandboxedBPB := trainAll(t, c, inSandbox(t))
	for round := range rounds {
		if !bytes.Equal(native[round], sandboxed[round]) || bpb[round] != sandboxedBPB[round] {
			t.Errorf("round %d: native and sandboxed runs differ", round)
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		edit func(env map[string]string, root string)
		want string
	}{
		"no command":     {nil, nil, "usage"},
		"other command":  {[]string{"sing"}, nil, "unknown command"},
		"no count":       {[]string{"train"}, func(e map[string]string, _ string) { delete(e, "STARLING_COUNT") }, "STARLING_COUNT"},
		"rank too high":  {[]string{"train"}, func(e map[string]string, _ string) { e["STARLING_RANK"] = "3" }, "rank 3 of 3"},
		"round too high": {[]string{"train"}, func(e map[string]string, _ string) { e["STARLING_ROUND"] = "2" }, "round 2 of 2"},
		"bad bits":       {[]string{"train"}, func(e map[string]string, _ string) { e["LM_BITS"] = "50" }, "LM_BITS"},
		"no shard":       {[]string{"train"}, nil, "shard.bin"},
		"no carry":       {[]string{"train"}, func(e map[string]string, _ string) { e["STARLING_ROUND"] = "1" }, "carry"},
		"bad carry": {[]string{"train"}, func(_ map[string]string, root string) {
			_ = os.Mkdir(filepath.Join(root, "carry"), 0o755)
			_ = os.WriteFile(filepath.Join(root, "carry", "weights.bin"), []byte("junk"), 0o644)
		}, "malformed"},
		"no weights": {[]string{"reduce"}, func(_ map[string]string, root string) {
			_ = os.Mkdir(filepath.Join(root, "data"), 0o755)
			_ = os.WriteFile(filepath.Join(root, "data", "heldout.bin"), []byte("text"), 0o644)
		}, "rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, root := environment(0, 0), t.TempDir()
			if tc.edit != nil {
				tc.edit(env, root)
			}
			err := run(tc.args, func(k string) string { return env[k] }, io.Discard, root)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}
