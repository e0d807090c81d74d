package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// BenchmarkRunner compares a runner with a mutex that is held over each write, on one journal and in turns. It
// reports the ratio of their times, and events of the runner by write.
func BenchmarkRunner(b *testing.B) {
	for _, load := range []struct{ machines, callers, events int }{{1, 1, 100}, {1, 64, 10}, {256, 256, 1}} {
		b.Run(fmt.Sprintf("machines=%d/callers=%d", load.machines, load.callers), func(b *testing.B) {
			s, err := store.OpenSQLite(b.TempDir() + "/journal")
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			counted := &counter{Store: s}
			keys := make([]string, load.machines)
			locked := &locked{store: s, all: map[string]ledger{}}
			p := ready(b, counted, &shell{})
			for i := range keys {
				keys[i] = strconv.Itoa(i)
				locked.all[keys[i]] = ledger{}
				p.Add(keys[i], ledger{})
			}
			p.run()
			// round has each caller send events to one machine, and returns how long all took.
			round := func(ask func(k string) error) time.Duration {
				began := time.Now()
				var wg sync.WaitGroup
				for c := range load.callers {
					wg.Go(func() {
						for range load.events {
							if err := ask(keys[c%len(keys)]); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(began)
			}
			var ratios []float64
			for b.Loop() {
				slow := round(func(k string) error { return locked.step(b.Context(), k, note{"x"}) })
				fast := round(func(k string) error { _, err := p.Ask(b.Context(), k, note{"x"}); return err })
				ratios = append(ratios, slow.Seconds()/fast.Seconds())
			}
			if err := p.stop(); err != nil {
				b.Error(err)
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "×mutex")
			b.ReportMetric(float64(len(ratios)*load.events*load.callers)/float64(counted.writes.Load()), "events/write")
		})
	}
}

// counter counts writes.
type counter struct {
	store.Store
	writes atomic.Int64
}

func (c *counter) Write(ctx context.Context, puts ...store.Put) error {
	c.writes.Add(1)
	return c.Store.Write(ctx, puts...)
}

// locked has all machines under one mutex, which it holds over each write.
type locked struct {
	store store.Store
	mu    sync.Mutex
	all   map[string]ledger
}

func (l *locked) step(ctx context.Context, k string, ev event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, _, err := l.all[k].Step(Now{Time: time.Now()}, ev)
	if err != nil {
		return err
	}
	var b journal.Batch
	ledgers.Put(&b, k, next)
	if err := b.Commit(ctx, l.store); err != nil {
		return err
	}
	l.all[k] = next
	return nil
}
