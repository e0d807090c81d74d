package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// modules is the hook that finds the program of a workload.
type modules struct{ b *executortest.Bench }

func (m modules) Prestart(_ context.Context, e *executor.Execution, l *executor.Launch) (err error) {
	c, err := workload.CID(e.Work.Module)
	if err == nil {
		l.Spec.Module, err = m.b.Blobs.Path(c)
	}
	return err
}

// bench returns an executor on a Fake, and a workload that runs until it is asked to stop.
func bench(t *testing.T, hooks ...executor.Hook) (*executortest.Bench, *nodepb.Workload) {
	t.Helper()
	b := executortest.New(t)
	b.Runtimes = map[string]runtime.Runtime{
		"wasm": runtimetest.NewFake("wasm", map[string]guest.Program{"wait": executortest.Wait, "end": func(guest.Process) int { return 0 }}),
	}
	b.Hooks = append([]executor.Hook{modules{b}}, hooks...)
	b.Start()
	return b, &nodepb.Workload{Runtime: "wasm", Module: b.Module("wait")}
}

// A lease runs one program at a time, the same start is one execution, and nothing begins under a lease that ends.
func TestExecutor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := bench(t)
		l := market.LeaseID{1}
		e := b.Must(l, 1, w)
		synctest.Wait()
		if again, err := b.Do(l, 1, w); err != nil || again != e {
			t.Errorf("the same start again: %v", err)
		}
		if _, err := b.Do(l, 2, w); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "still runs") {
			t.Errorf("a second one: %v", err)
		}
		b.End(l, time.Second)
		if s, _, _ := e.Snapshot(); s.State != nodepb.ExecState_EXEC_STATE_EXITED || s.ExitCode != 3 {
			t.Errorf("ended as %v", s)
		}
		if _, err := b.Do(l, 2, w); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "ending") {
			t.Errorf("under a lease that ends: %v", err)
		}
		if again, err := b.Do(l, 1, w); err != nil || again != e {
			t.Errorf("the one that ended: %v", err)
		}
		if ends := b.Ends(); len(ends) != 1 || ends["exit"] != 1 {
			t.Errorf("counted %v", ends)
		}
		if err := b.Forget(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if len(b.Under(l)) != 0 || len(b.Leases()) != 0 {
			t.Error("something of the lease is left")
		}
		again := b.Must(l, 3, w)
		b.End(l, 0)
		if s := b.Await(again); s.Reason != string(runtime.ReasonKilled) {
			t.Errorf("after the lease is forgotten: %v", s)
		}
	})
}

// A workload that asks for more than its lease has is refused before anything is journalled.
func TestLimits(t *testing.T) {
	t.Parallel()
	b, w := bench(t)
	for _, much := range []*uint32{&w.MemoryMib, &w.ShmMib, &w.DiskMib} {
		*much = executortest.Limits.MemoryMiB + 1
		if _, err := b.Do(market.LeaseID{1}, 1, w); !errors.Is(err, workload.ErrWorkload) || len(b.All()) != 0 {
			t.Errorf("%v: %v, %d executions", w, err, len(b.All()))
		}
		*much = 0
	}
}

// A program runs on without its peer and is taken over by the next process; one that is gone is lost.
func TestRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := bench(t)
		l := market.LeaseID{1}
		b.Must(l, 1, w)
		synctest.Wait()
		b.Stop()
		fake := b.Runtimes["wasm"].(*runtimetest.Fake)
		b.Runtimes = map[string]runtime.Runtime{"wasm": fake.Restart()}
		b.Start()
		b.End(l, time.Second)
		e, ok := b.Find(executor.Key{Lease: l, Seq: 1})
		if !ok {
			t.Fatal("the execution is forgotten")
		}
		if s := b.Await(e); s.ExitCode != 3 {
			t.Errorf("ended as %v", s)
		}
		l = market.LeaseID{2}
		b.Must(l, 1, w)
		synctest.Wait()
		b.Stop()
		_, h, _ := e.Snapshot()
		fake = b.Runtimes["wasm"].(*runtimetest.Fake)
		t.Cleanup(func() { _ = fake.Destroy(context.Background(), *h) })
		for _, gone := range []map[string]runtime.Runtime{{"wasm": runtimetest.NewFake("wasm", nil)}, {}} {
			b.Runtimes = gone
			b.Start()
			lost, _ := b.Find(executor.Key{Lease: l, Seq: 1})
			if s := b.Await(lost); s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.Reason != "lost" {
				t.Errorf("on a machine that knows nothing of it: %v", s)
			}
			b.Stop()
		}
		if _, h, _ := lastOf(b, l).Snapshot(); h != nil {
			_ = fake.Destroy(context.Background(), *h)
		}
	})
}

func lastOf(b *executortest.Bench, l market.LeaseID) *executor.Execution {
	all := b.Under(l)
	return all[len(all)-1]
}

// A buyer that sees the end of a program may fetch its outputs, also while the journal still writes the end.
func TestOutputsAreGrantedWithTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *executortest.Bench
		out := outputs{path: "/out"}
		b, w := bench(t, &out)
		out.blob = b.Module("wait")
		c, _ := workload.CID(out.blob)
		var e *executor.Execution
		checked := false
		b.Stop()
		b.Store = watched{b.Store, func() {
			if e == nil {
				return
			}
			if s, _, _ := e.Snapshot(); s.State.Ended() {
				checked = true
				if b.Files.Granted(c) != executortest.Buyer {
					t.Error("the outputs are not granted while the end is written")
				}
			}
		}}
		b.Start()
		e = b.Must(market.LeaseID{1}, 1, w)
		synctest.Wait()
		b.End(market.LeaseID{1}, time.Second)
		s := b.Await(e)
		synctest.Wait()
		if !checked || len(s.Outputs) != 1 {
			t.Errorf("checked %t, ended as %v", checked, s)
		}
	})
}

// outputs is a hook with one output.
type outputs struct {
	path string
	blob *nodepb.Blob
}

func (o *outputs) Exited(_ context.Context, _ *executor.Execution, r *executor.Result) error {
	r.Outputs = []*nodepb.Output{{Path: o.path, Blob: o.blob}}
	return nil
}

// watched is a journal that reports its writes.
type watched struct {
	store.Store
	writes func()
}

func (w watched) Write(ctx context.Context, puts ...store.Put) error {
	w.writes()
	return w.Store.Write(ctx, puts...)
}

// The command over executions goes to higher epochs only, and with it the outputs.
func TestHandTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := outputs{path: "/out"}
		b, w := bench(t, &out)
		out.blob = b.Module("wait")
		c, _ := workload.CID(out.blob)
		l := market.LeaseID{1}
		if _, _, ok := b.Terms(l); ok {
			t.Error("terms of a lease without executions")
		}
		lease := executortest.Lease(l)
		lease.Job, lease.Guardians = sign.Hash{4}, sign.Hash{5}
		e, err := b.Executor.Start(t.Context(), executortest.Buyer, lease, 1, w)
		if err != nil {
			t.Fatal(err)
		}
		if job, guardians, ok := b.Terms(l); !ok || job != lease.Job || guardians != lease.Guardians {
			t.Errorf("terms %v, %v, %t", job, guardians, ok)
		}
		synctest.Wait()
		b.End(l, 0)
		next, _ := peer.IDFromPrivateKey(p2ptest.Key(2))
		if err := b.HandTo(t.Context(), l, next, 2); err != nil || e.Commander() != next || b.Files.Granted(c) != next {
			t.Errorf("handed to %q, the outputs to %q: %v", e.Commander(), b.Files.Granted(c), err)
		}
		for _, epoch := range []uint64{1, 2} {
			var no *stream.Refused
			if err := b.HandTo(t.Context(), l, executortest.Buyer, epoch); !errors.As(err, &no) || no.Code != string(market.ReasonSupervision) {
				t.Errorf("epoch %d: %v", epoch, err)
			}
		}
		if err := b.HandTo(t.Context(), l, next, 2); err != nil {
			t.Errorf("the same again: %v", err)
		}
		b.Restart()
		if e := lastOf(b, l); e.Commander() != next {
			t.Errorf("after a restart it is commanded by %q", e.Commander())
		}
	})
}

// recorder is a hook that records its calls, and fails or blocks in one of them.
type recorder struct {
	name  string
	log   *calls
	fail  string // the call that fails
	block string // the call that blocks until its context ends
}

// calls are the calls of all hooks, in order.
type calls struct {
	mu  sync.Mutex
	all []string
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.all
	c.all = nil
	return out
}

var errHook = errors.New("hook fails")

func (r *recorder) call(ctx context.Context, what string) error {
	r.log.mu.Lock()
	r.log.all = append(r.log.all, what+" "+r.name)
	r.log.mu.Unlock()
	if r.block == what {
		<-ctx.Done()
		return ctx.Err()
	}
	if r.fail == what {
		return errHook
	}
	return nil
}

func (r *recorder) Admit(*executor.Execution, sign.Key) error {
	return r.call(context.Background(), "admit")
}
func (r *recorder) Restore(*executor.Execution) error {
	return r.call(context.Background(), "restore")
}
func (r *recorder) Prestart(ctx context.Context, e *executor.Execution, _ *executor.Launch) error {
	return r.call(ctx, "prestart")
}
func (r *recorder) Poststart(ctx context.Context, _ *executor.Execution) error {
	return r.call(ctx, "poststart")
}
func (r *recorder) Recover(*executor.Execution) { _ = r.call(context.Background(), "recover") }
func (r *recorder) Exited(ctx context.Context, _ *executor.Execution, _ *executor.Result) error {
	return r.call(ctx, "exited")
}
func (r *recorder) Stop(*executor.Execution) error { return r.call(context.Background(), "stop") }
func (r *recorder) Forget(*executor.Execution, *journal.Batch) func() {
	_ = r.call(context.Background(), "forget")
	return func() { _ = r.call(context.Background(), "forgot") }
}

// recorders returns hooks a and b.
func recorders() (log *calls, a, b *recorder) {
	log = &calls{}
	return log, &recorder{name: "a", log: log}, &recorder{name: "b", log: log}
}

func wantCalls(t *testing.T, when string, log *calls, want ...string) {
	t.Helper()
	if got := log.take(); !slices.Equal(got, want) {
		t.Errorf("%s: the hooks had %q, want %q", when, got, want)
	}
}

// Hooks are called in order before and after the start, and in reverse order after the end.
func TestHooksInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, first, second := recorders()
		b, w := bench(t, first, second)
		e := b.Must(market.LeaseID{1}, 1, w)
		synctest.Wait()
		wantCalls(t, "start", log, "admit a", "admit b", "prestart a", "prestart b", "poststart a", "poststart b")
		b.End(market.LeaseID{1}, time.Second)
		b.Await(e)
		synctest.Wait()
		wantCalls(t, "end", log, "exited b", "exited a", "stop b", "stop a")
		if err := b.Forget(t.Context(), market.LeaseID{1}); err != nil {
			t.Fatal(err)
		}
		wantCalls(t, "forget", log, "forget b", "forget a", "forgot b", "forgot a")
	})
}

// An error of a hook ends the execution, at whatever point, and all hooks are undone in reverse order.
func TestHooksAreUndone(t *testing.T) {
	t.Parallel()
	end := []string{"exited b", "exited a", "stop b", "stop a"}
	for what, c := range map[string]struct {
		hook int
		want []string
		fail bool // the execution fails
	}{
		"prestart a":  {0, append([]string{"admit a", "admit b", "prestart a"}, end...), true},
		"prestart b":  {1, append([]string{"admit a", "admit b", "prestart a", "prestart b"}, end...), true},
		"poststart a": {0, append([]string{"admit a", "admit b", "prestart a", "prestart b", "poststart a"}, end...), true},
		"exited b": {1, append([]string{"admit a", "admit b", "prestart a", "prestart b", "poststart a", "poststart b"},
			end...), true},
		"stop b": {1, append([]string{"admit a", "admit b", "prestart a", "prestart b", "poststart a", "poststart b"},
			end...), false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log, first, second := recorders()
				[]*recorder{first, second}[c.hook].fail = strings.Fields(what)[0]
				b, w := bench(t, first, second)
				w.Module = b.Module("end")
				e := b.Must(market.LeaseID{1}, 1, w)
				s := b.Await(e)
				synctest.Wait()
				wantCalls(t, what, log, c.want...)
				if failed := s.State == nodepb.ExecState_EXEC_STATE_FAILED; failed != c.fail {
					t.Errorf("ended as %v", s)
				}
				if strings.Contains(s.Message, errHook.Error()) {
					t.Errorf("the buyer has the text of an internal error: %q", s.Message)
				}
				if _, h, _ := e.Snapshot(); h != nil && strings.HasPrefix(what, "poststart") {
					if _, err := b.Runtimes["wasm"].Stats(t.Context(), *h); !errors.Is(err, runtime.ErrNotFound) {
						t.Errorf("the program is still there: %v", err)
					}
				}
			})
		})
	}
}

// A workload that a hook refuses is not journalled, and nothing is undone.
func TestHookRefuses(t *testing.T) {
	t.Parallel()
	log, first, second := recorders()
	b, w := bench(t, first, second)
	first.fail = "admit"
	if _, err := b.Do(market.LeaseID{1}, 1, w); !errors.Is(err, errHook) {
		t.Errorf("a refused workload: %v", err)
	}
	wantCalls(t, "refused", log, "admit a")
	b.Restart()
	if len(b.All()) != 0 {
		t.Error("a refused workload is in the journal")
	}
}

// A crash between two hooks before the start gives the attempt up: its hooks stop, and a fresh attempt begins.
func TestCrashBetweenHooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, first, second := recorders()
		second.block = "prestart"
		b, w := bench(t, first, second)
		e := b.Must(market.LeaseID{1}, 1, w)
		before := e.Stage().Dir
		synctest.Wait()
		b.Stop()
		wantCalls(t, "before the crash", log, "admit a", "admit b", "prestart a", "prestart b")
		second.block = ""
		b.Start()
		synctest.Wait()
		wantCalls(t, "after it", log, "restore a", "restore b", "stop b", "stop a", "prestart a", "prestart b", "poststart a", "poststart b")
		if after := lastOf(b, market.LeaseID{1}).Stage().Dir; after == before {
			t.Errorf("the second attempt has the directory of the first: %s", after)
		}
		b.Restart()
		synctest.Wait()
		wantCalls(t, "a restart while it runs", log, "restore a", "restore b", "recover a", "recover b")
		b.End(market.LeaseID{1}, time.Second)
		synctest.Wait()
		wantCalls(t, "end", log, "exited b", "exited a", "stop b", "stop a")
		b.Restart()
		wantCalls(t, "a restart after the end", log, "restore a", "restore b", "stop b", "stop a")
	})
}

// Power is cut before and after every write of an execution. After the next starts it ends as without a cut, and each
// hook was stopped after its last start.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		for n := 1; ; n++ {
			crashed := false
			synctest.Test(t, func(t *testing.T) { crashed = crashAt(t, n, when) })
			if !crashed {
				if n < 4 {
					t.Errorf("only %d writes", n-1)
				}
				break
			}
		}
	}
}

func crashAt(t *testing.T, n int, when store.When) (crashed bool) {
	name := fmt.Sprintf("crash at write %d, side %d", n, when)
	log, first, second := recorders()
	b, w := bench(t, first, second)
	w.Module = b.Module("end")
	b.Stop()
	disk := b.Store
	power := store.NewCrashing(disk)
	power.CrashAt(n, when)
	b.Store = power
	b.Start()
	l := market.LeaseID{1}
	begin := func() { // a buyer asks again until its execution is there
		for range 3 {
			if _, err := b.Do(l, 1, w); err == nil {
				return
			}
			select {
			case <-power.Crashed():
				crashed = true
				b.Stop()
				b.Store = disk
				b.Start()
			default:
			}
		}
		t.Fatalf("%s: the workload is not taken", name)
	}
	begin()
	synctest.Wait()
	select {
	case <-power.Crashed():
		if !crashed {
			crashed = true
			b.Stop()
			b.Store = disk
			b.Start()
			begin()
		}
	default:
	}
	synctest.Wait()
	s := b.Await(lastOf(b, l))
	if s.State != nodepb.ExecState_EXEC_STATE_EXITED && s.Reason != "lost" || s.ExitCode != 0 || len(b.All()) != 1 {
		t.Errorf("%s: ended as %v, %d executions", name, s, len(b.All()))
	}
	all := log.take()
	for _, hook := range []string{"a", "b"} {
		started, stopped := slices.Index(all, "prestart "+hook), -1
		for i, c := range all {
			if c == "prestart "+hook {
				started = i
			}
			if c == "stop "+hook {
				stopped = i
			}
		}
		if stopped < started {
			t.Errorf("%s: hook %s was started last and not stopped: %q", name, hook, all)
		}
	}
	return crashed
}

// Two leases have two users while their programs run, and a lease has one.
func TestAttackLeasesOfOneUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		users := &specs{}
		b, w := bench(t, users)
		for i := range 20 {
			b.Must(market.LeaseID{255, 255, byte(i)}, 1, w)
		}
		synctest.Wait()
		seen := map[uint32]bool{}
		for _, s := range users.all {
			if s.User == 0 || s.User > runtime.MaxUser || seen[s.User] {
				t.Errorf("user %d", s.User)
			}
			seen[s.User] = true
		}
		for i := range 20 {
			b.End(market.LeaseID{255, 255, byte(i)}, 0)
		}
	})
}

// specs is a hook that keeps what is going to be started.
type specs struct {
	mu  sync.Mutex
	all []runtime.Spec
}

func (s *specs) Prestart(_ context.Context, _ *executor.Execution, l *executor.Launch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, l.Spec)
	return nil
}

// Pause journals first, and a runtime without it refuses.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := bench(t)
		e := b.Must(market.LeaseID{1}, 1, w)
		synctest.Wait()
		for _, paused := range []bool{true, true, false} {
			if err := executor.SetPaused(t.Context(), e, paused); err != nil || e.Paused() != paused {
				t.Errorf("paused %t: %v", e.Paused(), err)
			}
		}
		b.End(market.LeaseID{1}, 0)
		if err := executor.SetPaused(t.Context(), e, true); err == nil || e.Paused() {
			t.Errorf("after the end: %v", err)
		}
		b.Stop()
		b.Runtimes = map[string]runtime.Runtime{"wasm": mute{b.Runtimes["wasm"]}}
		b.Start()
		e = b.Must(market.LeaseID{2}, 1, w)
		synctest.Wait()
		if err := executor.SetPaused(t.Context(), e, true); err == nil || !strings.Contains(err.Error(), "cannot pause") || e.Paused() {
			t.Errorf("a runtime that cannot: %v", err)
		}
		b.End(market.LeaseID{2}, 0)
	})
}

// mute is a runtime without the abilities that others have.
type mute struct{ runtime.Runtime }
