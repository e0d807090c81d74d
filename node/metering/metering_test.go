package metering

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// toy is a machine that keeps the last usage, and is over when it is stopped.
type toy struct {
	used           uint64
	over           bool
	ticks, resumed int
}

var errRefused = errors.New("refused")

func (m toy) Step(_ market.Slot, ev meter.Event) (toy, []meter.Effect, error) {
	switch ev := ev.(type) {
	case meter.UsageSampled:
		m.used = ev.CPUMillis
		return m, []meter.Effect{meter.Persist{State: binary.AppendUvarint(nil, m.used)}}, nil
	case meter.Stopped:
		m.over = true
		return m, []meter.Effect{meter.Persist{State: []byte("over")}, meter.Settled{Agreed: true}}, nil
	case meter.Ticked:
		m.ticks++
		return m, nil, nil
	}
	return m, nil, errRefused
}

func (m toy) Resume(market.Slot) (toy, []meter.Effect, error) {
	m.resumed++
	return m, []meter.Effect{meter.Settled{}}, nil
}

func (m toy) Settled() bool { return m.over }

// lease is one of a toy.
type lease struct {
	name   string
	broken error                 // of Complete
	later  func(context.Context) // of Stepped

	mu    sync.Mutex
	steps []Step[toy]
}

func (l *lease) String() string { return l.name }

func (l *lease) Complete(s *Step[toy]) error {
	s.Effects = slices.DeleteFunc(s.Effects, func(e meter.Effect) bool {
		p, ok := e.(meter.Persist)
		if ok {
			s.Records = append(s.Records, store.Put{Kind: "toy", Key: l.name, Value: p.State})
		}
		return ok
	})
	return l.broken
}

func (l *lease) Stepped(s Step[toy]) func(context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, s)
	return l.later
}

// last returns the machine as the lease knows it, and the number of steps.
func (l *lease) last() (m toy, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n = len(l.steps); n > 0 {
		m = l.steps[n-1].Meter
	}
	return m, n
}

// clock is a chain whose slot is the time in seconds.
type clock struct{ began time.Time }

func (c clock) Now(at time.Time) (market.Slot, error) {
	if c.began.IsZero() {
		return 0, slots.ErrUnknown
	}
	return market.Slot(at.Sub(c.began) / time.Second), nil
}

// disk is a journal that fails while it is set to, and whose writes wait for gate unless it is nil.
type disk struct {
	store.Store
	gate chan struct{}
	mu   sync.Mutex
	err  error
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) Write(ctx context.Context, puts ...store.Put) error {
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.Store.Write(ctx, puts...)
}

// running returns Meters that run until stop is called.
func running(s store.Store, c Clock) (m *Meters[*lease, toy], stop func()) {
	m = New[*lease, toy](Config{Name: "toy", Store: s, Clock: c, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	return m, func() { cancel(); <-done }
}

func record(t *testing.T, s store.Store, kind, key string) string {
	t.Helper()
	b, err := s.Get(t.Context(), kind, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	return string(b)
}

// A step, its records and the caller's are durable when Step returns, and the lease knows it by then. A refused event
// changes nothing.
func TestStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		m, stop := running(s, clock{time.Now()})
		defer stop()
		l := &lease{name: "a"}
		if _, err := m.Step(t.Context(), l, meter.UsageSampled{}); !errors.Is(err, machine.ErrUnknown) {
			t.Errorf("a lease that was not added: %v", err)
		}
		m.Add(l, toy{})
		time.Sleep(7 * time.Second)
		effects, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: 5}, store.Put{Kind: "lease", Key: "a", Value: []byte("x")})
		if err != nil || len(effects) > 0 || record(t, s, "toy", "a") != "\x05" || record(t, s, "lease", "a") != "x" {
			t.Errorf("effects %v, %v; the journal has %q", effects, err, record(t, s, "toy", "a"))
		}
		if got, n := l.last(); n != 1 || got.used != 5 || l.steps[0].Now.Slot != 7 || len(l.steps[0].Records) != 2 {
			t.Errorf("the lease knows %+v", l.steps)
		}
		if _, err := m.Step(t.Context(), l, meter.Started{}, store.Put{Kind: "lease", Key: "a", Value: []byte("y")}); !errors.Is(err, errRefused) {
			t.Errorf("a refused event: %v", err)
		}
		l.broken = errRefused
		if _, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: 6}); !errors.Is(err, errRefused) {
			t.Errorf("records that cannot be made: %v", err)
		}
		if got, n := l.last(); n != 1 || got.used != 5 || record(t, s, "lease", "a") != "x" {
			t.Errorf("after refusals: %+v", got)
		}
		if effects, err := m.Resume(t.Context(), l); err == nil || len(effects) > 0 {
			t.Errorf("resumed with %v, %v", effects, err)
		}
		l.broken = nil
		if effects, err := m.Resume(t.Context(), l); err != nil || len(effects) != 1 {
			t.Errorf("resumed with %v, %v", effects, err)
		}
		if _, n := l.last(); len(l.steps[n-1].Records) > 0 {
			t.Error("a step without changes is journalled")
		}
	})
}

// While the disk is full or the slot is unknown a caller gets the reason, and nothing of its event is seen.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		m, stop := running(d, clock{time.Now()})
		l := &lease{name: "a"}
		m.Add(l, toy{})
		d.fail(store.ErrFull)
		if _, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: 5}); !errors.Is(err, store.ErrFull) {
			t.Errorf("a full disk: %v", err)
		}
		if _, n := l.last(); n > 0 {
			t.Errorf("the lease knows %+v", l.steps)
		}
		d.fail(nil)
		if _, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: 6}); err != nil {
			t.Errorf("a disk with room again: %v", err)
		}
		if got, n := l.last(); n != 1 || got.used != 6 {
			t.Errorf("the lease knows %+v", l.steps)
		}
		stop()
		m, stop = running(d, clock{})
		defer stop()
		m.Add(l, toy{})
		if _, err := m.Step(t.Context(), l, meter.UsageSampled{}); !errors.Is(err, slots.ErrUnknown) {
			t.Errorf("no slot: %v", err)
		}
	})
}

// A watched lease is resumed and ticked until it is settled, and events in between put ticks off.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, stop := running(store.NewMemory(), clock{time.Now()})
		defer stop()
		l := &lease{name: "a"}
		m.Add(l, toy{})
		time.Sleep(time.Minute)
		if _, n := l.last(); n > 0 {
			t.Errorf("%d steps of a lease that is not watched", n)
		}
		if err := m.Watch(l, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if got, _ := l.last(); got.resumed != 1 || got.ticks < 9 || got.ticks > 10 {
			t.Errorf("after ten seconds: %+v", got)
		}
		if _, err := m.Step(t.Context(), l, meter.Stopped{}); err != nil {
			t.Error(err)
		}
		before, _ := l.last()
		time.Sleep(time.Minute)
		if got, _ := l.last(); got != before {
			t.Errorf("after its end: %+v", got)
		}
	})
}

// Work that a lease asks for after a step has a goroutine of its own, for which Run waits.
func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, stop := running(store.NewMemory(), clock{time.Now()})
		var done bool
		l := &lease{name: "a", later: func(ctx context.Context) { <-ctx.Done(); done = true }}
		m.Add(l, toy{})
		if _, err := m.Step(t.Context(), l, meter.Ticked{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if stop(); !done {
			t.Error("Run did not wait")
		}
	})
}

// A machine can be removed while nothing is promised: before its first event and when its lease is settled, and not
// while an event is under way.
func TestRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory(), gate: make(chan struct{})}
		m, stop := running(d, clock{time.Now()})
		defer stop()
		l := &lease{name: "a"}
		if m.Add(l, toy{}); !m.Remove(l) || m.Remove(l) {
			t.Error("a machine without events stays")
		}
		m.Add(l, toy{})
		if _, err := m.Step(t.Context(), l, meter.Started{}); !errors.Is(err, errRefused) || !m.Remove(l) {
			t.Errorf("after a refused event (%v) a machine stays", err)
		}
		m.Add(l, toy{})
		for _, ev := range []meter.Event{meter.UsageSampled{CPUMillis: 5}, meter.Stopped{}} {
			answer := make(chan error, 1)
			go func() {
				_, err := m.Step(t.Context(), l, ev)
				answer <- err
			}()
			synctest.Wait()
			if m.Remove(l) {
				t.Errorf("removed during %T", ev)
			}
			d.gate <- struct{}{}
			_, over := ev.(meter.Stopped)
			if err := <-answer; err != nil || m.Remove(l) != over {
				t.Errorf("after %T (%v) a machine is removed: %v", ev, err, !over)
			}
		}
	})
}

// A machine that was dropped finishes the event under way, and takes no other and no ticks.
func TestDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory(), gate: make(chan struct{})}
		m, stop := running(d, clock{time.Now()})
		defer stop()
		l := &lease{name: "a"}
		m.Drop(l) // is not there
		m.Add(l, toy{})
		if err := m.Watch(l, time.Second); err != nil {
			t.Error(err)
		}
		answer := make(chan error, 1)
		go func() {
			_, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: 5})
			answer <- err
		}()
		synctest.Wait()
		m.Drop(l)
		d.gate <- struct{}{}
		if err := <-answer; err != nil || record(t, d, "toy", "a") != "\x05" {
			t.Errorf("the event under way: %v", err)
		}
		_, before := l.last()
		if _, err := m.Step(t.Context(), l, meter.Ticked{}); !errors.Is(err, machine.ErrUnknown) {
			t.Errorf("another event: %v", err)
		}
		time.Sleep(time.Minute)
		if _, n := l.last(); n != before {
			t.Errorf("%d steps after the end", n-before)
		}
	})
}

// Events of one lease are taken one after the other, whoever sends them.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		m, stop := running(s, clock{time.Now()})
		defer stop()
		l := &lease{name: "a"}
		m.Add(l, toy{})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if _, err := m.Step(t.Context(), l, meter.UsageSampled{CPUMillis: uint64(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var used []uint64
		for _, s := range l.steps {
			used = append(used, s.Meter.used)
		}
		if got := record(t, s, "toy", "a"); got != string(binary.AppendUvarint(nil, used[len(used)-1])) {
			t.Errorf("the journal has %q, the last step %d", got, used[len(used)-1])
		}
		if slices.Sort(used); len(used) != 100 || used[0] != 0 || used[99] != 99 {
			t.Errorf("steps %v", used)
		}
	})
}

// A fault of a lease's code ends the program.
func TestPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New[*lease, toy](Config{Name: "toy", Store: &disk{}, Clock: clock{time.Now()}, Log: slog.New(slog.DiscardHandler)})
		l := &lease{name: "a"}
		m.Add(l, toy{})
		go func() { _, _ = m.Step(t.Context(), l, meter.UsageSampled{}) }() // its journal is nil
		synctest.Wait()
		defer func() {
			if recover() == nil {
				t.Error("Run returned")
			}
		}()
		m.Run(t.Context())
	})
}
