package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// journal notes the steps of services in order.
type journal struct {
	mu    sync.Mutex
	steps []string
}

func (j *journal) note(step, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.steps = append(j.steps, step+" "+name)
}

// room is a service that can fail in each of its steps.
type room struct {
	*journal
	name                    string
	startErr, runErr, close error
	early                   <-chan struct{} // Run ends when it is closed; nil: when its context ends
	stuck                   <-chan struct{} // Run does not end before it is closed, if it is not nil
	health                  *Problem
}

func (r *room) Name() string { return r.name }

func (r *room) Start(context.Context) error {
	r.note("start", r.name)
	return r.startErr
}

func (r *room) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-r.early:
	}
	if r.stuck != nil {
		<-r.stuck
	}
	r.note("end", r.name)
	return r.runErr
}

func (r *room) Close() error {
	r.note("close", r.name)
	return r.close
}

func (r *room) Health() *Problem { return r.health }

// rooms returns n services named a, b, c, … that share a journal.
func rooms(n int) (*List, []*room, *journal) {
	j, l := &journal{}, &List{}
	var all []*room
	for i := range n {
		all = append(all, &room{journal: j, name: string(rune('a' + i))})
		l.Add(all[i])
	}
	return l, all, j
}

// run runs a list in a bubble, ends its context once nothing moves, and returns the result of Run.
func run(t *testing.T, l *List) (err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); err = l.Run(ctx) }()
	synctest.Wait()
	cancel()
	<-done
	return err
}

func same(t *testing.T, got *journal, want ...string) {
	t.Helper()
	if !slices.Equal(got.steps, want) {
		t.Errorf("steps %q, want %q", got.steps, want)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _, j := rooms(3)
		if err := run(t, l); err != nil {
			t.Error(err)
		}
		same(t, j, "start a", "start b", "start c", "end c", "close c", "end b", "close b", "end a", "close a")
	})
}

// A service that fails to start ends the peer before anything runs. All are closed, as constructors open things too.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, all, j := rooms(3)
		all[1].startErr = errors.New("no port")
		err := run(t, l)
		if !errors.Is(err, all[1].startErr) || err.Error() != "b: starting: no port" {
			t.Errorf("got %v", err)
		}
		same(t, j, "start a", "start b", "close c", "close b", "close a")
	})
}

func TestEndedServiceEndsPeer(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	for _, c := range []struct {
		err  error
		want error
		text string
	}{
		{nil, ErrEnded, "b: service ended by itself"}, {broken, broken, "b: disk full"},
		{context.Canceled, context.Canceled, "b: context canceled"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, all, j := rooms(3)
			early := make(chan struct{})
			close(early)
			all[1].early, all[1].runErr = early, c.err
			err := l.Run(t.Context())
			if !errors.Is(err, c.want) || err.Error() != c.text {
				t.Errorf("got %v, want %s", err, c.text)
			}
			same(t, j, "start a", "start b", "start c", "end b", "end c", "close c", "close b", "end a", "close a")
		})
	}
}

// A service that does not stop is left behind, unclosed, and all others stop.
func TestSlowStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, all, j := rooms(3)
		stuck := make(chan struct{})
		all[1].stuck = stuck
		err := run(t, l)
		if !errors.Is(err, ErrStuck) || err.Error() != "b: service did not stop within 1m0s" {
			t.Errorf("got %v", err)
		}
		same(t, j, "start a", "start b", "start c", "end c", "close c", "end a", "close a")
		close(stuck)
		synctest.Wait()
	})
}

func TestErrorsOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, all, _ := rooms(3)
		all[0].runErr, all[1].runErr, all[2].close = errors.New("x"), context.Canceled, errors.New("y")
		if err := run(t, l); err == nil || err.Error() != "c: closing: y\na: x" {
			t.Errorf("got %v", err)
		}
	})
}

func TestTwice(t *testing.T) {
	t.Parallel()
	l, all, j := rooms(2)
	all[1].name = "a"
	if err := l.Run(t.Context()); !errors.Is(err, ErrTwice) {
		t.Errorf("got %v", err)
	}
	same(t, j, "close a", "close a")
}

func TestAbilities(t *testing.T) {
	t.Parallel()
	l, all, j := rooms(2)
	l.Add(Loop("c", func(context.Context) error { return nil }))
	l.Add(Checked(Loop("d", nil), func() *Problem { return &Problem{Problem: "disk full", Remedy: "free some"} }))
	all[1].health = &Problem{Problem: "chain down", Remedy: "name another"}
	want := []Problem{{"b", "chain down", "name another"}, {"d", "disk full", "free some"}}
	if got := l.Health(); !slices.Equal(got, want) {
		t.Errorf("health %v, want %v", got, want)
	}
	if got := With[Health](l); len(got) != 3 {
		t.Errorf("%d services have health, want 3", len(got))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	same(t, j, "close b", "close a")
}

type noted struct {
	*journal
	name string
}

func (n noted) Close() { n.note("close door", n.name) }

func TestBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, none := &journal{}, errors.New("no door")
		wait := Loop("a", func(ctx context.Context) error { <-ctx.Done(); j.note("end", "a"); return nil })
		l := &List{}
		l.Add(Behind(wait, func() (Door, error) { j.note("open door", "a"); return noted{j, "a"}, nil }))
		if err := run(t, l); err != nil {
			t.Error(err)
		}
		same(t, j, "open door a", "end a", "close door a")
		l = &List{}
		l.Add(Behind(wait, func() (Door, error) { return nil, none }))
		if err := run(t, l); !errors.Is(err, none) {
			t.Errorf("got %v", err)
		}
	})
}

// Whatever services do, each is closed once and after those behind it, and none runs without all before it.
func TestOrderProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "services")
		l, all, j := rooms(n)
		early := make(chan struct{})
		for _, r := range all {
			switch rapid.IntRange(0, 9).Draw(rt, r.name) {
			case 0:
				r.startErr = errors.New("start")
			case 1:
				r.early = early
			case 2:
				r.runErr = errors.New("run")
			}
		}
		synctest.Test(t, func(t *testing.T) {
			close(early)
			err := run(t, l)
			failed := slices.ContainsFunc(all, func(r *room) bool {
				return r.startErr != nil || r.early != nil || r.runErr != nil
			})
			none := slices.ContainsFunc(all, func(r *room) bool { return r.startErr != nil })
			if failed != (err != nil) {
				t.Errorf("error %v", err)
			}
			at := func(step, name string) int { return slices.Index(j.steps, step+" "+name) }
			for i, r := range all {
				closed, end := at("close", r.name), at("end", r.name)
				if closed < 0 || none != (end < 0) || end > closed {
					t.Errorf("service %s: %q", r.name, j.steps)
				}
				if i == 0 {
					continue
				}
				before, start := all[i-1].name, at("start", r.name)
				if closed > at("close", before) || start >= 0 && at("start", before) > start {
					t.Errorf("service %s before %s: %q", before, r.name, j.steps)
				}
			}
			if want := len(all); count(j.steps, "close") != want {
				t.Errorf("%d closed, want %d", count(j.steps, "close"), want)
			}
		})
	})
}

func count(steps []string, step string) (n int) {
	for _, s := range steps {
		var verb, name string
		if _, err := fmt.Sscan(s, &verb, &name); err == nil && verb == step {
			n++
		}
	}
	return n
}
