package metering

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// BenchmarkSteps meters leases on one journal: on a runner, and in turns with it under one mutex that is held over
// each write. It reports how many times as many steps the runner takes in the same time, its rate, and its steps by
// write.
func BenchmarkSteps(b *testing.B) {
	for _, load := range []struct{ leases, callers int }{{1, 1}, {1, 64}, {100, 100}, {1000, 1000}} {
		b.Run(fmt.Sprintf("leases=%d/callers=%d", load.leases, load.callers), func(b *testing.B) {
			s, err := store.OpenSQLite(b.TempDir() + "/journal")
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			counted := &counting{Store: s}
			m := New[*lease, toy](Config{Name: "toy", Store: counted, Clock: clock{time.Now()}, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				m.Run(ctx)
			}()
			leases := make([]*lease, load.leases)
			for i := range leases {
				leases[i] = &lease{name: strconv.Itoa(i)}
				m.Add(leases[i], toy{})
			}
			steps := max(1, 2000/load.callers)
			round := func(step func(l *lease, n uint64) error) time.Duration {
				began := time.Now()
				var wg sync.WaitGroup
				for c := range load.callers {
					wg.Go(func() {
						for n := range steps {
							if err := step(leases[c%len(leases)], uint64(n)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(began)
			}
			var held sync.Mutex
			var ratios []float64
			var taken time.Duration
			for b.Loop() {
				slow := round(func(l *lease, n uint64) error {
					held.Lock()
					defer held.Unlock()
					return s.Write(b.Context(), store.Put{Kind: "toy", Key: l.name, Value: binary.AppendUvarint(nil, n)})
				})
				fast := round(func(l *lease, n uint64) error {
					_, err := m.Step(b.Context(), l, meter.UsageSampled{CPUMillis: n})
					return err
				})
				ratios, taken = append(ratios, slow.Seconds()/fast.Seconds()), taken+fast
			}
			cancel()
			<-done
			slices.Sort(ratios)
			all := float64(len(ratios) * steps * load.callers)
			b.ReportMetric(ratios[len(ratios)/2], "×mutex")
			b.ReportMetric(all/taken.Seconds(), "steps/s")
			b.ReportMetric(all/float64(counted.writes.Load()), "steps/write")
		})
	}
}

// counting counts writes.
type counting struct {
	store.Store
	writes atomic.Int64
}

func (c *counting) Write(ctx context.Context, puts ...store.Put) error {
	c.writes.Add(1)
	return c.Store.Write(ctx, puts...)
}
