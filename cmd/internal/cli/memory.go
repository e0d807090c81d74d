package cli

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// restTime is for how long a daemon must not have collected garbage to be at rest.
	restTime = 5 * time.Second
	// worthGiving is from how many bytes on memory is given back.
	worthGiving = 3 << 20
)

// giveBack returns to the system what a burst of work needed, once it is over, until ctx ends. A peer is idle most of the time and shares
// its machine with what it is rented for; the runtime by itself keeps such memory for minutes.
func giveBack(ctx context.Context) {
	m := newMemory()
	for tick := time.NewTicker(restTime); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			m.look()
		}
	}
}

// memory is what giveBack saw last.
type memory struct {
	cycles  uint64
	samples []metrics.Sample
}

func newMemory() *memory {
	return &memory{samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}}
}

// look gives back what is free or was allocated since the last collection, where that is much and there was none since the last look. It
// reports whether it did.
func (m *memory) look() bool {
	metrics.Read(m.samples)
	cycles, live := m.samples[0].Value.Uint64(), m.samples[1].Value.Uint64()
	objects, free := m.samples[2].Value.Uint64(), m.samples[3].Value.Uint64()
	resting := cycles == m.cycles
	m.cycles = cycles
	if !resting || free+max(objects, live)-live < worthGiving {
		return false
	}
	debug.FreeOSMemory()
	metrics.Read(m.samples)
	m.cycles = m.samples[0].Value.Uint64()
	return true
}
