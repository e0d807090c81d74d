package disk

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// block is the least size of every file and directory.
	block = 4096
	// poll is the shortest interval between two measurements of mounts. Measuring takes at most a tenth of the time, or
	// half of it while the disk's free space falls by more than the execution may still write.
	poll = 50 * time.Millisecond
	// failures is the number of consecutive measurements that may fail.
	failures = 20
	// floorFiles is how many files must be free on a disk on which mounts are measured.
	floorFiles = 1 << 10
	// slowLook is the longest measurement of an execution's files; a longer one means that they grow too fast to
	// measure.
	slowLook = time.Second
)

// Growth is the last measurements of an execution's files. The zero value has none.
type Growth struct {
	mu    sync.Mutex
	used  int64
	at    time.Time // end of the last measurement
	rate  float64   // bytes in a second, between the last two
	began time.Time // start of the current measurement; zero if none
}

func (g *Growth) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began = time.Now()
}

func (g *Growth) end(used int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.at.IsZero() {
		g.rate = float64(used-g.used) / max(now.Sub(g.at).Seconds(), 1e-3)
	}
	g.used, g.at, g.began = used, now, time.Time{}
}

// Speed returns bytes per second; +Inf for files that cannot be measured in time.
func (g *Growth) Speed() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.began.IsZero() && time.Since(g.began) > slowLook {
		return math.Inf(1)
	}
	return g.rate
}

// Watch measures directories repeatedly until they exceed limit bytes or their files, and then returns true. pause
// waits, and reports whether the execution ended meanwhile; Watch then returns false. The peer measures, not the guard,
// since the guard shares the program's CPU limit. pid is a process of the container.
func (g *Growth) Watch(dirs []string, limit int64, pid int, pause func(time.Duration) bool) (over bool) {
	for failed := 0; ; {
		began, free := time.Now(), room(dirs[0])
		g.begin()
		used, err := Measure(dirs, limit)
		used.Bytes += removed(dirs, pid)
		g.end(used.Bytes)
		if failed++; err == nil {
			failed = 0
		}
		// Files that cannot be measured may not grow: a program that caused this would have the whole disk.
		if err == nil && used.Over(limit) || errors.Is(err, runtime.ErrDeep) || failed > failures {
			return true
		}
		more, took := used, time.Since(began)
		for next := time.Now().Add(max(poll, 10*took)); time.Now().Before(next) && !more.Over(limit); {
			if pause(max(poll, took)) {
				return false
			}
			now := room(dirs[0])
			more = Usage{used.Bytes + free.Bytes - now.Bytes, used.Files + free.Files - now.Files}
		}
	}
}
