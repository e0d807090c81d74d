package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/node/service"
)

// retryEvery is how often a store with a failed last write is tried again.
const retryEvery = 5 * time.Second

// Watched is a store that remembers whether its last write succeeded. As a service it retries a failed store until it
// works again, since no other write may happen meanwhile.
type Watched struct {
	Store

	mu      sync.Mutex
	err     error // of the last write
	since   time.Time
	written uint64
	failed  uint64
}

// Watch returns a store that watches the writes of s.
func Watch(s Store) *Watched { return &Watched{Store: s} }

// Write implements Store.
func (w *Watched) Write(ctx context.Context, puts ...Put) error {
	err := w.Store.Write(ctx, puts...)
	if errors.Is(err, ErrRecord) || errors.Is(err, ErrClosed) || err != nil && errors.Is(err, ctx.Err()) {
		return err // which say nothing of the disk
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.written++
	} else {
		w.failed++
		if w.err == nil {
			w.since = time.Now()
		}
	}
	w.err = err
	return err
}

// last returns since when writes have failed, and the error of the last write.
func (w *Watched) last() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.err
}

// Name implements service.Service.
func (*Watched) Name() string { return "journal" }

// Run tries a store that fails, until ctx ends.
func (w *Watched) Run(ctx context.Context) error {
	every := time.NewTicker(retryEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if _, err := w.last(); err == nil {
			continue
		}
		_ = w.Write(ctx, Put{Kind: "trial", Key: "write", Value: []byte{}}) // it notes its error
	}
}

// Close implements io.Closer: the store itself is its opener's to close.
func (*Watched) Close() error { return nil }

// Health implements service.Health: it returns a problem while writes fail.
func (w *Watched) Health() *service.Problem {
	since, err := w.last()
	if err == nil {
		return nil
	}
	p := &service.Problem{
		Problem: "nothing can be written since " + since.Format(time.TimeOnly) + ": " + err.Error(),
		Remedy:  "check the disk of the home directory (df, dmesg), then restart the peer",
	}
	if errors.Is(err, ErrFull) {
		p.Remedy = "free some space on the disk of the home directory (df); the peer then continues"
	}
	return p
}

var descWrites = prometheus.NewDesc("starling_journal_writes_total", "Writes of the peer's journal, by result.",
	[]string{"result"}, nil)

// Describe implements prometheus.Collector.
func (*Watched) Describe(ch chan<- *prometheus.Desc) { ch <- descWrites }

// Collect implements prometheus.Collector.
func (w *Watched) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descWrites, prometheus.CounterValue, float64(w.written), "ok")
	ch <- prometheus.MustNewConstMetric(descWrites, prometheus.CounterValue, float64(w.failed), "failed")
}
