package buyer

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-network/starling/node/store"
	"runtime"
)

// bare is a job in memory, of whose ranks no logs are open.
func (b *Buyer) bare(t *testing.T, j Job) *supervisor {
	t.Helper()
	logless := j
	logless.Ranks = nil
	s, err := b.newSupervisor(logless)
	if err != nil {
		t.Fatal(err)
	}
	s.Show(func(shown *Job) bool {
		*shown = j
		return true
	})
	return s
}

// TestAttackLongHistory: with thousands of jobs a page of jobs, and what looks for open ones, copies these and not all jobs ever. Pages are in
// order and complete, also when most jobs have left memory.
func TestAttackLongHistory(t *testing.T) {
	const jobs, open, kept, ranks = 3000, 3, 2500, 64
	b := newPastWorld(t, store.NewMemory()).start()
	at := time.Unix(1_800_000_000, 0)
	for i := range jobs {
		j := Job{ID: fmt.Sprintf("j%05d", i), Created: at.Add(time.Duration(i) * time.Second), State: Succeeded, Spec: pastSpec("long"), Ranks: make([]Rank, ranks)}
		if i%(jobs/open) == 0 {
			j.State = Running
		}
		b.jobs[j.ID] = b.bare(t, j)
		b.jobs[j.ID].Close()
	}
	size := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	page := func(q Query) Page {
		p, err := b.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := size(func() { b.Jobs() })
	check := func() {
		if n := size(func() { page(Query{Limit: 10}) }); n > all/10 {
			t.Errorf("a page of 10 jobs takes %d bytes, all take %d", n, all)
		}
		if n := size(func() { b.Open() }); n > all/10 {
			t.Errorf("%d open jobs take %d bytes, all take %d", open, n, all)
		}
		seen, q := 0, Query{Limit: 700}
		for {
			p := page(q)
			for _, j := range p.Jobs {
				if want := fmt.Sprintf("j%05d", jobs-1-seen); j.ID != want {
					t.Fatalf("job %d of the list is %s, want %s", seen, j.ID, want)
				}
				seen++
			}
			if q.After = p.Next; q.After == "" {
				break
			}
		}
		if n := len(page(Query{State: "open"}).Jobs); seen != jobs || n != open || len(b.Open()) != open || b.States()[Running] != open {
			t.Errorf("%d jobs in pages, %d open", seen, n)
		}
	}
	check()
	if err := (retiring{b}).tidy(t.Context(), kept*ranks); err != nil || len(b.jobs) > kept+open {
		t.Errorf("%d jobs stay in memory: %v", len(b.jobs), err)
	}
	check()
}
