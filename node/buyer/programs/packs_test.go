package programs

import (
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/blob"
)

// packOf is a provider's report of a pack.
func packOf(number uint64, content string, size uint64) *nodepb.Execution {
	return &nodepb.Execution{State: running, Packs: []*nodepb.Pack{{
		Number: number, Blob: &nodepb.Blob{Cid: blob.Sum([]byte(content)).Bytes(), Size: size, Tree: true},
	}}}
}

// Packs are fetched while a program runs, and the third replaces the first.
func TestPacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	for i, content := range []string{"a", "b", "c"} {
		w.provider.reports <- packOf(uint64(i+1), content, 50)
		r := w.until(t, func(r jobs.Rank) bool {
			return len(r.Checkpoints) > 0 && r.Checkpoints[0].Number == uint64(i+1)
		})
		if want := min(i+1, 2); len(r.Checkpoints) != want || r.Checkpoints[0].File.CID != blob.Sum([]byte(content)).String() {
			t.Errorf("after pack %d: %+v", i+1, r.Checkpoints)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fetched != 3 {
		t.Errorf("fetched %d times", w.fetched)
	}
}

// A provider that reports false packs all the time has few of them fetched, and gets few lines in the trace. The job
// runs on.
func TestAttackFalsePacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Programs.Begin(jobs.StartExecution{Exec: w.exec()})
	began := time.Now()
	const reports = 50
	for i := range uint64(reports) {
		w.provider.reports <- packOf(i+1, string(rune('a'+i)), 49) // they have 50 bytes
		<-w.heard
	}
	w.provider.reports <- packOf(99, "honest", 50)
	r := w.until(t, func(r jobs.Rank) bool { return len(r.Checkpoints) > 0 })
	if r.Checkpoints[0].Number != 99 || r.State != jobs.RankRunning {
		t.Errorf("%+v", r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// One in three quarters of the interval, and the first.
	if most := int(time.Since(began)/(750*time.Millisecond)) + 2; w.fetched > most {
		t.Errorf("fetched %d times, at most %d wanted", w.fetched, most)
	}
	if n := w.known(w.exec()).packs.complaints; n > w.fetched {
		t.Errorf("%d lines in the trace", n)
	}
}
