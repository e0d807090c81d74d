package checkpoints_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/checkpoints"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// packer counts packs, and has a test change files during one.
type packer struct {
	*blob.Store
	mu     sync.Mutex
	packs  int
	during func()
}

func (p *packer) PutTree(ctx context.Context, dir string, most int64) (blob.Tree, error) {
	p.mu.Lock()
	p.packs++
	during := p.during
	p.mu.Unlock()
	t, err := p.Store.PutTree(ctx, dir, most)
	if during != nil {
		during()
	}
	return t, err
}

func (p *packer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packs
}

// bench is an executor with the hooks of files and checkpoints.
func bench(t *testing.T, program guest.Program, blobs func(s *blob.Store) workload.Blobs) *executortest.Bench {
	t.Helper()
	b := executortest.New(t)
	b.Runtimes = map[string]runtime.Runtime{
		"wasm": runtimetest.NewFake("wasm", map[string]guest.Program{"train": program}),
	}
	of := blobs(b.Blobs)
	b.Hooks = []executor.Hook{
		hooks.Retention{Retain: time.Hour, Files: b.Files}, hooks.Program{Blobs: of, From: b.Files},
		hooks.Files{Blobs: of, From: b.Files}, checkpoints.New(of, b.Files, b.Log),
	}
	b.Start()
	return b
}

// keeping is a program that waits with a checkpoint at /ckpt.
type keeping struct {
	*executortest.Bench
	e      *executor.Execution
	packer *packer
	dir    string // of the checkpoint, on this machine
}

var lease = market.LeaseID{1}

func newKeeping(t *testing.T, every time.Duration, program guest.Program) *keeping {
	t.Helper()
	k := &keeping{packer: &packer{}}
	k.Bench = bench(t, program, func(s *blob.Store) workload.Blobs {
		k.packer.Store = s
		return k.packer
	})
	k.e = k.Must(lease, 1, &nodepb.Workload{
		Runtime: "wasm", Module: k.Module("train"),
		Checkpoint: &nodepb.Checkpoint{Path: "/ckpt", EveryMillis: uint64(every / time.Millisecond)},
	})
	k.Running(k.e)
	k.dir = filepath.Join(k.e.Stage().Dir, "disk", "ckpt")
	t.Cleanup(func() { _ = k.Executor.End(context.Background(), lease, 0) })
	return k
}

func (k *keeping) write(name, content string) {
	k.T.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(content), 0o644); err != nil {
		k.T.Fatal(err)
	}
}

// wait waits for a state of the execution.
func (k *keeping) wait(most time.Duration, wanted func(s *nodepb.Execution) bool) *nodepb.Execution {
	k.T.Helper()
	late := time.After(most)
	for {
		s, _, wake := k.e.Snapshot()
		if wanted(s) {
			return s
		}
		select {
		case <-wake:
		case <-late:
			k.T.Fatalf("after %v: %v", most, s)
		}
	}
}

// newest returns the number of an execution's newest pack, or 0.
func newest(s *nodepb.Execution) uint64 {
	if n := len(s.Packs); n > 0 {
		return s.Packs[n-1].Number
	}
	return 0
}

// pack waits for a pack, and returns its CID and a file of it.
func (k *keeping) pack(number uint64, name string) (cid.Cid, string) {
	k.T.Helper()
	s := k.wait(10*time.Minute, func(s *nodepb.Execution) bool { return newest(s) == number && s.PackProblem == "" })
	p := s.Packs[len(s.Packs)-1]
	c, err := workload.CID(p.Blob)
	if err != nil || k.Files.Granted(c) != executortest.Buyer || !p.Blob.Tree {
		k.T.Fatalf("%v, granted to %s: %v", p, k.Files.Granted(c), err)
	}
	dir := filepath.Join(k.T.TempDir(), "x")
	if _, err := k.Blobs.Unpack(k.T.Context(), c, dir, 1<<20); err != nil {
		k.T.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		k.T.Fatal(err)
	}
	return c, string(b)
}

// A checkpoint is packed at most once in an interval, and only if it changed. The last two packs are kept.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping(t, 5*time.Second, executortest.Wait)
		time.Sleep(20 * time.Second)
		if n := k.packer.count(); n != 0 {
			t.Errorf("an empty directory was packed %d times", n)
		}
		var cids []cid.Cid
		for i := uint64(1); i <= 4; i++ {
			k.write("step", fmt.Sprint(i))
			c, got := k.pack(i, "step")
			if got != fmt.Sprint(i) {
				t.Errorf("pack %d has step %s", i, got)
			}
			cids = append(cids, c)
			time.Sleep(30 * time.Second)
			if n := k.packer.count(); n != int(i) {
				t.Errorf("%d packs of %d states", n, i)
			}
		}
		needed, dropped := hooks.Needed(k.All()), k.Files.Dropped()
		for i, c := range cids {
			if kept := i >= 2; needed[c] != kept || dropped[c] > 0 == kept {
				t.Errorf("pack %d is needed: %t, dropped %d times", i+1, needed[c], dropped[c])
			}
		}
		k.write("other", "x") // an equal tree has the number that it had
		if err := os.Remove(filepath.Join(k.dir, "other")); err != nil {
			t.Fatal(err)
		}
		k.write("step", "4")
		time.Sleep(20 * time.Second)
		if s, _, _ := k.e.Snapshot(); newest(s) != 4 {
			t.Errorf("an equal tree: %v", s.Packs)
		}
		k.Stop()
		k.Runtimes["wasm"] = k.Runtimes["wasm"].(*runtimetest.Fake).Restart()
		k.Start()
		k.e = k.Under(lease)[0]
		if _, got := k.pack(4, "step"); got != "4" {
			t.Errorf("after a restart pack 4 has step %s", got)
		}
		k.write("step", "5")
		if _, got := k.pack(5, "step"); got != "5" {
			t.Errorf("pack 5 has step %s", got)
		}
		k.End(lease, 0)
		k.Await(k.e)
		if err := k.Forget(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if dropped := k.Files.Dropped(); dropped[cids[3]] != 1 {
			t.Errorf("dropped after the end: %v", dropped)
		}
	})
}

// A program continues in a writable checkpoint directory with the files that its buyer sent.
func TestCheckpointRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := bench(t, func(p guest.Process) int {
			b, err := guest.ReadFile(p, "/ckpt/model/step", 100)
			if err != nil || guest.WriteFile(p, "/ckpt/model/step", append(b, "+1"...)) != nil {
				return 1
			}
			return guestCopy(p, "/ckpt/model/step", "/out/step")
		}, func(s *blob.Store) workload.Blobs { return s })
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "model"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model", "step"), []byte("41"), 0o644); err != nil {
			t.Fatal(err)
		}
		tree, err := r.Blobs.PutTree(t.Context(), dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		e := r.Must(lease, 1, &nodepb.Workload{
			Runtime: "wasm", Module: r.Module("train"),
			Outputs: []string{"/out"}, Checkpoint: &nodepb.Checkpoint{Path: "/ckpt", EveryMillis: 1000},
			Inputs: []*nodepb.Input{{Path: "/ckpt", Blob: &nodepb.Blob{
				Cid: tree.CID.Bytes(), Size: uint64(tree.Size), Tree: true}}},
		})
		if s := r.Await(e); s.ExitCode != 0 || len(s.Outputs) != 1 {
			t.Errorf("ended as %v", s)
		}
	})
}

func guestCopy(p guest.Process, from, to string) int {
	b, err := guest.ReadFile(p, from, 100)
	if err != nil || string(b) != "41+1" || guest.WriteFile(p, to, b) != nil {
		return 1
	}
	return 0
}

// A file that is open for writing may be half of one, however long its writer pauses: it is not packed.
func TestAttackCheckpointHalfWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping(t, time.Second, executortest.Wait)
		f, err := os.Create(filepath.Join(k.dir, "model.pt"))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := f.WriteString("half "); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			if n := k.packer.count(); n != 0 {
				t.Fatalf("a file that is being written was packed %d times", n)
			}
		}
		if _, err := f.WriteString("whole"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, got := k.pack(1, "model.pt"); !strings.HasSuffix(got, "whole") {
			t.Errorf("pack 1 ends with %q", got[max(len(got)-10, 0):])
		}
		log, err := os.Create(filepath.Join(k.dir, "events.log")) // is open all the time
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		k.pack(2, "events.log")
	})
}

// The checkpoint of a program that writes all the time is not packed, and the report gives the reason.
func TestAttackCheckpointConstantWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping(t, 2*time.Second, executortest.Wait)
		done, stop := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					_ = os.WriteFile(filepath.Join(k.dir, "log"), []byte(strings.Repeat("x", i)), 0o644)
				}
			}
		}()
		s := k.wait(5*time.Minute, func(s *nodepb.Execution) bool { return s.PackProblem != "" })
		if !strings.Contains(s.PackProblem, "change all the time") || newest(s) != 0 || k.packer.count() != 0 {
			t.Errorf("%v after %d packs", s, k.packer.count())
		}
		close(stop)
		<-done
		k.pack(1, "log")
	})
}

// A pack during which a file changed is discarded, and the attempts become rarer up to the interval.
func TestAttackCheckpointChangesInPack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping(t, 10*time.Second, executortest.Wait)
		n := 0
		k.packer.during = func() {
			n++
			_ = os.WriteFile(filepath.Join(k.dir, "model"), []byte(strings.Repeat("new ", n)), 0o644)
		}
		k.write("model", "old")
		time.Sleep(200 * time.Second)
		synctest.Wait()
		k.packer.mu.Lock()
		packs := k.packer.packs
		k.packer.during = nil
		k.packer.mu.Unlock()
		if s, _, _ := k.e.Snapshot(); newest(s) != 0 || packs > 25 || packs < 5 {
			t.Errorf("%d packs in 20 intervals, reported is %v", packs, s.Packs)
		}
		if _, got := k.pack(1, "model"); !strings.HasPrefix(got, "new ") {
			t.Errorf("pack 1 has %.20q", got)
		}
		if c := blob.Sum(nil); k.Files.Dropped()[c] != 0 || len(k.Files.Dropped()) == 0 {
			t.Errorf("dropped: %v", k.Files.Dropped())
		}
	})
}

// Links out of the directory, sockets, pipes, devices, too many entries and too many bytes are reported. The earlier
// pack stays, and so does the program.
func TestAttackCheckpointKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"link":     {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "x")) }, "symbolic link"},
		"dangling": {func(dir string) error { return os.Symlink("../../run", filepath.Join(dir, "x")) }, "symbolic link"},
		"pipe":     {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "x"), 0o644) }, "neither a file nor a folder"},
		"socket":   {func(dir string) error { return syscall.Mknod(filepath.Join(dir, "x"), syscall.S_IFSOCK|0o644, 0) }, "neither a file nor a folder"},
		"device":   {func(dir string) error { return syscall.Mknod(filepath.Join(dir, "x"), syscall.S_IFCHR|0o644, 1<<8|5) }, "neither a file nor a folder"},
		"entries": {func(dir string) error {
			for i := range blob.MaxEntries / 1000 {
				d := filepath.Join(dir, fmt.Sprint(i))
				if err := os.Mkdir(d, 0o755); err != nil {
					return err
				}
				for j := range 1000 {
					if err := os.Symlink("../good", filepath.Join(d, fmt.Sprint(j))); err != nil {
						return err
					}
				}
			}
			return nil
		}, "more than 100000 entries"},
		"depth": {func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 200)), 0o755)
		}, "folders in each other"},
		"bytes": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "x"), make([]byte, 9<<20), 0o644)
		}, "more than the 16 MiB of disk"},
		"length": {func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, "x"), 1<<40)
		}, "more than the 16 MiB of disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKeeping(t, time.Second, executortest.Wait)
				k.write("good", "good")
				k.pack(1, "good")
				if err := c.make(k.dir); err != nil {
					t.Skipf("this machine makes none: %v", err)
				}
				s := k.wait(time.Hour, func(s *nodepb.Execution) bool { return s.PackProblem != "" })
				if !strings.Contains(s.PackProblem, c.want) || newest(s) != 1 || len(s.PackProblem) > 600 {
					t.Errorf("%v, want %q", s, c.want)
				}
				if s, _, _ := k.e.Snapshot(); s.State != nodepb.ExecState_EXEC_STATE_RUNNING {
					t.Errorf("the program is %v", s.State)
				}
			})
		})
	}
}

// The end of a stopped program is packed if it exited well. Of a killed one only files that were at rest before are.
func TestCheckpointAtEnd(t *testing.T) {
	t.Parallel()
	save := func(code int) guest.Program {
		return func(p guest.Process) int {
			for !guest.Exists(p, guest.StopFile) {
				p.Burn()
			}
			_ = guest.WriteFile(p, "/ckpt/step", []byte("last"))
			return code
		}
	}
	for name, c := range map[string]struct {
		program guest.Program
		grace   time.Duration
		number  uint64
	}{
		"saved": {save(0), time.Minute, 1}, "crashed": {save(1), time.Minute, 0},
		"killed": {func(p guest.Process) int {
			_ = guest.WriteFile(p, "/ckpt/step", []byte("half"))
			return executortest.Wait(p)
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKeeping(t, time.Hour, c.program)
				k.End(lease, c.grace)
				s := k.Await(k.e)
				if newest(s) != c.number {
					t.Errorf("%v has pack %d, want %d", s, newest(s), c.number)
				}
				if c.number > 0 {
					if _, got := k.pack(1, "step"); got != "last" {
						t.Errorf("the pack has step %q", got)
					}
				}
				if want := string(runtime.ReasonKilled); name == "killed" && s.Reason != want {
					t.Errorf("ended as %q", s.Reason)
				}
			})
		})
	}
}
