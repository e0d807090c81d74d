package changes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/run/runtest"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// wallet is a chain that does not answer for one job before it is released.
type wallet struct {
	job     string
	asked   chan struct{}
	release chan struct{}
	once    sync.Once
}

func (w *wallet) Afford(ctx context.Context, job string, _ market.Amount, _ uint32) error {
	if job != w.job {
		return nil
	}
	w.once.Do(func() { close(w.asked) })
	select {
	case <-w.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Within implements Limits.
func (*wallet) Within(_ *run.Job, _ job.Job, change func() error) error { return change() }

// While the chain does not answer for one change of a job, another change of the job waits no longer than its caller,
// and neither readers nor other jobs wait at all.
func TestOneChangeAtATime(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	slow, other := w.Open(runtest.Spec(1), runtest.NewParts(), nil, nil), w.Open(runtest.Spec(1), runtest.NewParts(), nil, nil)
	w.Restore()
	w.Run()
	w.Begin(slow)
	w.Begin(other)
	chain := &wallet{job: slow.ID, asked: make(chan struct{}), release: make(chan struct{})}
	cfg := &Config{Genesis: runtest.Genesis, Runner: w.Runner, Clock: w, Wallet: chain, Limits: chain, Log: p2ptest.Quiet()}
	of := New(cfg, slow)
	first := make(chan error, 1)
	go func() {
		_, err := of.Extend(t.Context(), time.Hour, 0)
		first <- err
	}()
	<-chain.asked
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := of.Extend(ctx, time.Hour, 0)
		second <- err
	}()
	if got, err := New(cfg, other).Extend(t.Context(), time.Hour, 0); err != nil || got.Run != job.Span(2*time.Hour) {
		t.Errorf("another job: %+v, %v", got, err)
	}
	if j := slow.Snapshot(); j.Spec.Timeouts.Run != time.Hour {
		t.Errorf("a reader finds %v", j.Spec.Timeouts.Run)
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("a second change, whose caller went away: %v", err)
	}
	close(chain.release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got, err := of.Extend(t.Context(), time.Hour, 0); err != nil || got.Run != job.Span(3*time.Hour) {
		t.Errorf("the next change: %+v, %v", got, err)
	}
}

// A cluster that is being changed refuses another size at once, and a change that was not begun leaves the turn.
func TestScaleIsRefusedMeanwhile(t *testing.T) {
	t.Parallel()
	w := runtest.New(t, store.NewMemory())
	j := w.Open(runtest.Spec(1), runtest.NewParts(), nil, func(j *record.Job) { j.Cluster = &record.Cluster{} })
	c := New(&Config{Genesis: runtest.Genesis}, j)
	stopping := errors.New("the peer stops")
	if _, err := c.Scale(2, 0, func(func()) error { return stopping }); !errors.Is(err, stopping) {
		t.Errorf("a peer that stops: %v", err)
	}
	var work func()
	done, err := c.Scale(2, 0, func(f func()) error { work = f; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Scale(3, 0, nil); !errors.Is(err, record.ErrRefused) {
		t.Errorf("while it is scaled: %v", err)
	}
	work()
	if err := <-done; !errors.Is(err, record.ErrNotRunning) { // it is queued
		t.Errorf("scaled: %v", err)
	}
	if _, err := c.Scale(3, 0, func(func()) error { return nil }); err != nil {
		t.Errorf("after that: %v", err)
	}
}
