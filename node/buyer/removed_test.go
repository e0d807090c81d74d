package buyer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/store"
)

// unsettled is payments of which those of one job can still move.
type unsettled struct {
	pay.Service
	job string
}

func (u unsettled) LetGo(job string) ([]store.Put, func(bool), bool) {
	if job == u.job {
		return nil, nil, false
	}
	return u.Service.LetGo(job)
}

func (b *Buyer) remove(ctx context.Context, id string) (Removed, error) {
	r := &removal{b: retiring{b}, id: id}
	err := r.run(ctx)
	return r.Removed, err
}

// A job that ended long ago is removed, in memory or archived, and after a crash at any write the next call does. One
// whose money can move, or that ended today, stays. The sums stay in any case.
func TestRemove(t *testing.T) {
	t.Parallel()
	const archived, money, young = 1, 2, 3
	for n := range 7 {
		for _, when := range []store.When{store.Before, store.After} {
			t.Run(fmt.Sprintf("crash %d/%d", n, when), func(t *testing.T) {
				t.Parallel()
				testRemove(t, n, when, archived, money, young)
			})
		}
	}
}

func testRemove(t *testing.T, n int, when store.When, archived, money, young int) {
	disk := store.NewMemory()
	st := store.NewCrashing(disk)
	w := newPastWorld(t, disk)
	w.began = w.began.Add(-8 * 24 * time.Hour)
	for i := range young + 1 {
		j := w.ended(i)
		if i == young {
			j.Created, j.Ended = time.Now().Add(-time.Minute), time.Now()
		}
		w.journal(j)
		put := store.Put{Kind: leases.Receipts.Kind(), Key: fmt.Sprintf("%s/%020d", w.core(i).ID(), 1), Value: []byte{1}}
		if err := disk.Write(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	start := func(st store.Store) *Buyer {
		w.cfg.Store = st
		b := w.start()
		b.pay = unsettled{b.pay, pastID(money)}
		for _, s := range b.jobs { // as Run finds them
			s.Close()
		}
		return b
	}
	b := start(st)
	if err := (retiring{b}).leave(t.Context(), []*supervisor{b.jobs[pastID(archived)]}); err != nil || b.archive.Len() != 1 {
		t.Fatal(b.archive.Len(), err)
	}
	totals := b.Totals()
	after := totals // an archived job's cost is known without its escrows, which this test has not
	after.Paid += w.ended(0).Owed
	for _, i := range []int{money, young} {
		if _, err := b.remove(t.Context(), pastID(i)); !errors.Is(err, ErrNeeded) {
			t.Errorf("job %d is removed: %v", i, err)
		}
	}
	if _, err := b.remove(t.Context(), "jother"); !errors.Is(err, ErrNoJob) {
		t.Errorf("a job that is not there: %v", err)
	}
	st.CrashAt(st.Count()+n, when)
	for i := range archived + 1 {
		r, err := b.remove(t.Context(), pastID(i))
		if n == 0 && (err != nil || len(r.Left) != 1 || r.Left[0] != w.left(i)) {
			t.Errorf("job %d: %+v, %v", i, r, err)
		}
	}
	b = start(disk)
	if got := b.Totals(); got != totals && got != after {
		t.Errorf("totals %+v, want %+v or %+v", got, totals, after)
	}
	for i := range archived + 1 {
		if _, err := b.remove(t.Context(), pastID(i)); err != nil && !errors.Is(err, ErrNoJob) {
			t.Fatal(err)
		}
	}
	for _, b := range []*Buyer{b, start(disk)} {
		if got := b.Totals(); got != after {
			t.Errorf("removed: totals %+v, want %+v", got, after)
		}
		for i := range young + 1 {
			if _, err := b.Job(pastID(i)); (err == nil) != (i > archived) || b.Uses(w.left(i)) != (i > archived) {
				t.Errorf("job %d: %v, its output is used: %v", i, err, b.Uses(w.left(i)))
			}
		}
	}
	w.nothingOf(disk, archived+1)
}

// Remove is served beside the tidying of a running buyer, and waits no longer than its caller.
func TestRemoveWhileRunning(t *testing.T) {
	t.Parallel()
	w := newPastWorld(t, store.NewMemory())
	w.began = w.began.Add(-8 * 24 * time.Hour)
	w.journal(w.ended(0), w.ended(1))
	b := w.start()
	for _, s := range b.jobs {
		s.Close()
	}
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if _, err := b.Remove(short, pastID(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a buyer that does not run: %v", err)
	}
	go retiring{b}.tidying(t.Context())
	r, err := b.Remove(t.Context(), pastID(0)[:len(pastID(0))-1]) // the beginning of both
	if !errors.Is(err, ErrNoJob) {
		t.Errorf("the beginning of two: %+v, %v", r, err)
	}
	if r, err = b.Remove(t.Context(), pastID(0)); err != nil || len(r.Left) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := b.Remove(t.Context(), pastID(0)); !errors.Is(err, ErrNoJob) {
		t.Errorf("once more: %v", err)
	}
	if all := b.Jobs(); len(all) != 1 || all[0].ID != pastID(1) {
		t.Errorf("there are %v", all)
	}
}

// nothingOf fails the test where a journal or the logs have something of the first jobs.
func (w *pastWorld) nothingOf(disk store.Store, jobs int) {
	w.t.Helper()
	for i := range jobs {
		id, lease := pastID(i), w.core(i).ID().String()
		for kind, prefix := range map[string]string{
			record.Records.Kind(): id, "past": id, "pastjob": id, "pastlease": id + "/", "pastblob": w.left(i).String(),
			leases.Records.Kind(): lease, leases.Payers.Kind(): lease, trace.Records.Kind(): id + "/", leases.Receipts.Kind(): lease + "/",
		} {
			if err := disk.List(w.t.Context(), kind, prefix, func(key string, _ []byte) error {
				w.t.Errorf("of job %d there is %s %s", i, kind, key)
				return nil
			}); err != nil {
				w.t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(w.cfg.Dir, "jobs", id)); err == nil {
			w.t.Errorf("job %d has a directory", i)
		}
	}
}
