package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
)

// talker says two lines and waits.
func talker(p guest.Process) int {
	fmt.Fprintln(p.Stdout(), "hello")
	fmt.Fprintln(p.Stderr(), "careful")
	return executortest.Wait(p)
}

func talking(t *testing.T) (*executortest.Bench, *executor.Execution) {
	t.Helper()
	b, w := bench(t)
	b.Stop()
	b.Runtimes = map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", map[string]guest.Program{"talk": talker})}
	b.Start()
	w.Module = b.Module("talk")
	e := b.Must(market.LeaseID{1}, 1, w)
	synctest.Wait()
	return b, e
}

// A follower gets the states and both logs from the offsets that it names, until the end.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, e := talking(t)
		var logs [2]strings.Builder
		var states []*nodepb.Execution
		done := make(chan error, 1)
		go func() {
			done <- executor.Watch(t.Context(), e, &nodepb.WatchRequest{StderrOffset: 4}, func(it *nodepb.WatchItem) error {
				if s := it.GetExecution(); s != nil {
					states = append(states, s)
				}
				if l := it.GetLog(); l != nil {
					i := 0
					if l.Stderr {
						i = 1
					}
					logs[i].Write(l.Data)
				}
				return nil
			})
		}()
		synctest.Wait()
		b.End(market.LeaseID{1}, time.Second)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		last := states[len(states)-1]
		if logs[0].String() != "hello\n" || !strings.HasPrefix(logs[1].String(), "ful\n") || !last.State.Ended() || last.ExitCode != 3 {
			t.Errorf("stdout %q, stderr %q, in the end %v", logs[0].String(), logs[1].String(), last)
		}
	})
}

// A follower of an ended execution gets its end, one that fails ends, and none outlives the peer.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, e := talking(t)
		gone := errors.New("gone")
		if err := executor.Watch(t.Context(), e, &nodepb.WatchRequest{}, func(*nodepb.WatchItem) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("a follower that fails: %v", err)
		}
		closing := func(err error) bool {
			no, ok := errors.AsType[*stream.Refused](err)
			return ok && no.Code == stream.CodeClosing
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		nothing := func(*nodepb.WatchItem) error { return nil }
		if err := executor.Watch(ctx, e, &nodepb.WatchRequest{}, nothing); !closing(err) {
			t.Errorf("a follower that leaves: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- executor.Watch(t.Context(), e, &nodepb.WatchRequest{}, nothing) }()
		synctest.Wait()
		b.Restart()
		if err := <-done; !closing(err) {
			t.Errorf("when the peer stops: %v", err)
		}
		b.End(market.LeaseID{1}, time.Second)
		n := 0
		e = lastOf(b, market.LeaseID{1})
		if err := executor.Watch(t.Context(), e, &nodepb.WatchRequest{StdoutOffset: 1 << 63}, func(*nodepb.WatchItem) error { n++; return nil }); err != nil || n == 0 {
			t.Errorf("after the end there are %d items: %v", n, err)
		}
	})
}

// Streams enter a running program only, up to a bound, and its end waits for them.
func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, e := talking(t)
		var leave []func()
		for range executor.MaxStreams {
			_, l, err := e.Enter()
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		refused := func() string {
			_, _, err := e.Enter()
			no, _ := errors.AsType[*stream.Refused](err)
			if no == nil {
				return ""
			}
			return no.Code
		}
		if code := refused(); code != stream.CodeBusy {
			t.Errorf("one too many: %q", code)
		}
		if err := b.AskToStop(e, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.AskToStop(e, 0); err != nil {
			t.Errorf("asked again: %v", err)
		}
		synctest.Wait()
		if e.Ended() || e.Alive().Err() == nil {
			t.Errorf("ended %t before the streams, which know of its end: %v", e.Ended(), e.Alive().Err())
		}
		for _, l := range leave {
			l()
		}
		if s := b.Await(e); s.Reason != string(runtime.ReasonKilled) {
			t.Errorf("ended as %v", s)
		}
		if code := refused(); code != "execution" {
			t.Errorf("after the end: %q", code)
		}
	})
}

// broken is a store that takes nothing for a while.
type broken struct {
	store.Store
	err error
}

func (f *broken) Write(ctx context.Context, puts ...store.Put) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Write(ctx, puts...)
}

// Notes of hooks are journalled with the execution, and a note that cannot be journalled is not in force.
func TestNotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := bench(t)
		b.Stop()
		disk := &broken{Store: b.Store}
		b.Store = disk
		b.Start()
		e := b.Must(market.LeaseID{1}, 1, w)
		synctest.Wait()
		read := func() (n int) {
			if _, err := e.Noted("test", &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := e.Keep(t.Context(), "test", 5); err != nil || read() != 5 {
			t.Fatalf("the note is %d: %v", read(), err)
		}
		disk.err = errors.New("disk full")
		if err := e.Keep(t.Context(), "test", 6); !errors.Is(err, disk.err) || read() != 5 {
			t.Errorf("on a full disk the note is %d: %v", read(), err)
		}
		if err := executor.SetPaused(t.Context(), e, true); !errors.Is(err, disk.err) || e.Paused() {
			t.Errorf("on a full disk it is paused %t: %v", e.Paused(), err)
		}
		if _, err := b.Do(market.LeaseID{2}, 1, w); !errors.Is(err, disk.err) || len(b.All()) != 1 {
			t.Errorf("on a full disk there are %d executions: %v", len(b.All()), err)
		}
		disk.err = nil
		if err := e.Note("other", 7); err != nil {
			t.Fatal(err)
		}
		b.Restart()
		e = lastOf(b, market.LeaseID{1})
		var other int
		if ok, err := e.Noted("other", &other); read() != 5 || ok || err != nil {
			t.Errorf("after a restart the notes are %d and %d", read(), other)
		}
		b.Must(market.LeaseID{2}, 1, w)
		b.End(market.LeaseID{1}, 0)
		b.End(market.LeaseID{2}, 0)
	})
}
