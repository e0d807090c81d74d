package peercmd

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// restTime is the time without garbage collections after which a daemon counts as idle.
	restTime = 5 * time.Second
	// worthGiving is the least number of bytes to return to the system.
	worthGiving = 2 << 20
)

// giveBack returns the memory of finished bursts of work to the system, until ctx ends. A peer is mostly idle and
// shares its machine with rented programs; the runtime by itself keeps such memory for minutes.
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

// memory is giveBack's last observation.
type memory struct {
	cycles  uint64
	kept    uint64 // bytes that could not be returned the last time
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

// read returns the number of collections so far, and the bytes that are free or were allocated since the last one.
func (m *memory) read() (cycles, spare uint64) {
	metrics.Read(m.samples)
	live, objects := m.samples[1].Value.Uint64(), m.samples[2].Value.Uint64()
	return m.samples[0].Value.Uint64(), m.samples[3].Value.Uint64() + max(objects, live) - live
}

// look returns spare memory to the system if there is enough of it and no collection since the last call. It reports
// whether it did.
func (m *memory) look() bool {
	cycles, spare := m.read()
	resting := cycles == m.cycles
	m.cycles, m.kept = cycles, min(m.kept, spare)
	if !resting || spare < m.kept+worthGiving {
		return false
	}
	debug.FreeOSMemory()
	m.cycles, m.kept = m.read()
	return true
}
