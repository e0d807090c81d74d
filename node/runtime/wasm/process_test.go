package wasm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/compilecache"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

// peerEnv makes the test binary a peer that starts one execution, prints its handle and waits to be killed.
const peerEnv = "STARLING_TEST_PEER"

type peerTask struct {
	Spec     runtime.Spec
	CacheDir string
	Grace    time.Duration
	Recover  runtime.Handle // if set, an execution to recover instead of starting one
	Pause    bool
}

// peerMain is that peer.
func peerMain(task string) {
	var p peerTask
	if err := json.Unmarshal([]byte(task), &p); err != nil {
		panic(err)
	}
	r, err := New(Config{CacheDir: p.CacheDir, Grace: p.Grace})
	if err != nil {
		panic(err)
	}
	h := p.Recover
	if h.Dir != "" {
		err = r.Recover(context.Background(), h)
	} else {
		h, err = r.Start(context.Background(), p.Spec)
	}
	if err != nil {
		panic(err)
	}
	if p.Pause {
		if err := r.Pause(context.Background(), h); err != nil {
			panic(err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(h); err != nil {
		panic(err)
	}
	select {}
}

// killedPeer runs an execution under a peer of its own and kills that peer with SIGKILL.
func killedPeer(t *testing.T, s runtime.Spec, grace time.Duration) runtime.Handle {
	t.Helper()
	return killPeer(t, peerTask{Spec: s, Grace: grace})
}

// killPeer runs a peer of its own, kills it with SIGKILL when it has done its task, and returns its execution.
func killPeer(t *testing.T, p peerTask) runtime.Handle {
	t.Helper()
	_, p.CacheDir = program(t)
	task, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"="+string(task))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h, err := runtime.UnmarshalHandle(line)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// awaitChildsEnd returns when the child of an execution is dead.
func awaitChildsEnd(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, aliveFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		switch alive, err := process.Held(f); {
		case err != nil:
			t.Fatal(err)
		case !alive:
			return
		case time.Now().After(deadline):
			t.Fatal("the child still lives")
		}
	}
}

// spin is the spec of a program that never calls the host.
func spin(t *testing.T) runtime.Spec {
	t.Helper()
	return runtime.Spec{ID: "spin", Module: write(t, "spin", spinning), Dir: filepath.Join(t.TempDir(), "run")}
}

func TestOrphanEndsByItself(t *testing.T) {
	t.Parallel()
	h := killedPeer(t, spin(t), 100*time.Millisecond)
	awaitChildsEnd(t, h.Dir)
	r := newRuntime(t, time.Minute)
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
}

func TestOrphanIsRecovered(t *testing.T) {
	t.Parallel()
	h := killedPeer(t, spin(t), time.Hour)
	r := newRuntime(t, time.Hour)
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if s, err := readStatus(h.Dir); err != nil || s.Phase != phaseRunning {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := newRuntime(t, time.Hour).Recover(t.Context(), h); err == nil || errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("two peers own one execution: %v", err)
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A child that something else kills leaves no word; its execution is lost, not hung. For its own peer and for one that
// adopted it.
func TestChildKilledFromOutside(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(*Runtime) runtime.Handle{
		"own": func(r *Runtime) runtime.Handle { return start(t, r, spin(t)) },
		"adopted": func(r *Runtime) runtime.Handle {
			h := killedPeer(t, spin(t), time.Hour)
			if err := r.Recover(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			return h
		},
	} {
		r := newRuntime(t, time.Hour)
		h := h(r)
		s, err := readStatus(h.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(s.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e := wait(t, r, h)
		if e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost || e.Ended.Before(e.Started) {
			t.Errorf("%s: %+v", name, e)
		}
		if s, err := readStatus(h.Dir); err != nil || s.Phase != phaseEnded || s.Exit.Reason != runtime.ReasonLost {
			t.Errorf("%s: not written down: %+v, %v", name, s, err)
		}
	}
}

// A collection would have to stop a guest that never calls the host; the watchers must not wait for that.
func TestWatchersLiveBesideASpinningGuest(t *testing.T) {
	t.Parallel()
	s := spin(t)
	s.Limits.WallTime = 200 * time.Millisecond
	r := newRuntime(t, time.Minute)
	if e := wait(t, r, start(t, r, s)); e.Reason != runtime.ReasonTimeout {
		t.Errorf("%+v", e)
	}
}

func TestTrap(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, time.Minute)
	h := start(t, r, runtime.Spec{Module: write(t, "trap", trapping)})
	if e := wait(t, r, h); e.Reason != runtime.ReasonTrap || e.Code != runtime.CodeTrap {
		t.Errorf("%+v", e)
	}
	log, err := os.ReadFile(filepath.Join(h.Dir, "stderr.log"))
	if err != nil || !strings.Contains(string(log), "unreachable") {
		t.Errorf("stderr %q, %v", log, err)
	}
}

func TestCPUShare(t *testing.T) {
	t.Parallel()
	if !process.CanWake {
		t.Skip("CPU shares are not enforced here")
	}
	r := newRuntime(t, time.Minute)
	s := spin(t)
	s.Limits = runtime.Limits{MilliCPU: 200, WallTime: time.Second}
	h := start(t, r, s)
	before, err := r.Stats(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	e := wait(t, r, h)
	after, err := r.Stats(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	used, wall := time.Duration(after.CPUMillis-before.CPUMillis)*time.Millisecond, e.Ended.Sub(e.Started)
	if e.Reason != runtime.ReasonTimeout || used > wall*3/10 || used == 0 {
		t.Errorf("a fifth of a core was %v of %v, %+v", used, wall, e)
	}
}

func TestStoppedBelowItsShare(t *testing.T) {
	t.Parallel()
	s := spin(t)
	s.Limits.MilliCPU = 10 // so that it is asleep nearly always
	r := newRuntime(t, time.Minute)
	h := start(t, r, s)
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Reason != runtime.ReasonKilled {
		t.Errorf("%+v", e)
	}
}

func TestStartGivenUp(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	r, err := New(Config{CacheDir: filepath.Join(t.TempDir(), "cold")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := filepath.Join(t.TempDir(), "run")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Start(ctx, runtime.Spec{ID: "a", Module: module, Dir: dir}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	for { // until its child is compiling
		if _, err := os.Stat(filepath.Join(dir, statusFile)); err == nil {
			break
		}
		if t.Context().Err() != nil {
			return
		}
	}
	cancel()
	wg.Wait()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestChildThatIsNone(t *testing.T) {
	t.Parallel()
	module, cache := program(t)
	for _, command := range [][]string{{"/nonexistent"}, {"/bin/sh", "-c", "echo not me >&2; exit 1"}} {
		r, err := New(Config{CacheDir: cache, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		_, err = r.Start(t.Context(), runtime.Spec{ID: "a", Module: module, Dir: dir})
		if err == nil || len(command) > 1 && !strings.Contains(err.Error(), "not me") {
			t.Errorf("%v: %v", command, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its directory is still there: %v", err)
		}
	}
}

// Children that start one program at once compile it once, whichever peers of the cache they are of.
func TestCompiledOnce(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	cache := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for range 4 {
		r, err := New(Config{CacheDir: cache})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			h := start(t, r, runtime.Spec{Module: module, Args: []string{"exit", "0"}})
			if e := wait(t, r, h); !e.OK() {
				t.Errorf("%+v", e)
			}
		})
	}
	wg.Wait()
	if n := compilations(t, cache); n != 1 {
		t.Errorf("compiled %d times", n)
	}
}

// compilations counts how often the one program of a cache was compiled since the cache was pruned.
func compilations(t *testing.T, cache string) int {
	t.Helper()
	turns, err := filepath.Glob(filepath.Join(cache, "*.turn"))
	if err != nil || len(turns) != 1 {
		t.Fatalf("turns: %v, %v", turns, err)
	}
	b, err := os.ReadFile(turns[0])
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// Several children may fill the cache at once, and a damaged entry is made again.
func TestCache(t *testing.T) {
	t.Parallel()
	module := write(t, "tiny", tiny)
	cache := filepath.Join(t.TempDir(), "cache")
	r, err := New(Config{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	run := func() {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				h := start(t, r, runtime.Spec{Module: module})
				if e := wait(t, r, h); !e.OK() {
					t.Errorf("%+v", e)
				}
			})
		}
		wg.Wait()
	}
	run()
	entries, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("cache holds %v, %v", entries, err)
	}
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:len(b)/2] },
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func([]byte) []byte { return nil },
	} {
		b, err := os.ReadFile(entries[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(entries[0], damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		run()
	}
	compilecache.Prune(cache, 1)
	if entries, _ := filepath.Glob(filepath.Join(cache, "*", "*")); len(entries) != 0 {
		t.Errorf("after pruning: %v", entries)
	}
	run()
	if n := compilations(t, cache); n != 1 {
		t.Errorf("after pruning the program was compiled %d times", n)
	}
}

// BenchmarkStart is the whole of a small module, warm: child, compiled code from the cache, run, exit seen by the peer.
func BenchmarkStart(b *testing.B) {
	module, _ := program(b)
	r := newRuntime(b, time.Minute)
	for name, s := range map[string]runtime.Spec{
		"go-4MB": {Module: module, Args: []string{"hello"}},
		"tiny":   {Module: write(b, "tiny", tiny)},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.ID, s.Dir = "bench", filepath.Join(b.TempDir(), "run")
				h := start(b, r, s)
				if e := wait(b, r, h); !e.OK() {
					b.Fatal(e)
				}
				if err := r.Destroy(b.Context(), h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A program that is asleep for its CPU share nearly always stays paused past its own timer.
func TestPausedBelowItsShare(t *testing.T) {
	t.Parallel()
	if !process.CanWake {
		t.Skip("CPU shares are not enforced here")
	}
	s := spin(t)
	s.Limits.MilliCPU = 200
	r := newRuntime(t, time.Minute)
	h := start(t, r, s)
	if err := r.Pause(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	used := func() uint64 {
		u, err := r.Stats(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		return u.CPUMillis
	}
	time.Sleep(100 * time.Millisecond) // at most one slice of its own; a longer sleep finds a fault more surely, never a false one
	before := used()
	time.Sleep(300 * time.Millisecond)
	if after := used(); after > before+10 {
		t.Errorf("while it was paused it used %d ms", after-before)
	}
	if err := r.Resume(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Reason != runtime.ReasonKilled {
		t.Errorf("%+v", e)
	}
}

// A paused child whose peer is killed is woken, sees that nobody is there, and ends: whether that peer started it or
// recovered it.
func TestPausedOrphanEnds(t *testing.T) {
	t.Parallel()
	for name, recovered := range map[string]bool{"of the peer that started it": false, "of a peer that recovered it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := peerTask{Spec: spin(t), Grace: 100 * time.Millisecond, Pause: true}
			if recovered {
				p.Recover = killedPeer(t, p.Spec, 10*time.Second) // the child's own grace
			}
			h := killPeer(t, p)
			awaitChildsEnd(t, h.Dir)
			r := newRuntime(t, time.Minute)
			if err := r.Recover(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if e := wait(t, r, h); e.Reason != runtime.ReasonLost {
				t.Errorf("%+v", e)
			}
		})
	}
}
