package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/store"
)

// testingTB is the part of a test that *rapid.T has too.
type testingTB interface {
	Context() context.Context
	Helper()
	Fatal(args ...any)
}

func open(t testingTB, st store.Store) *Archive {
	t.Helper()
	a, err := Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sample is the i-th job of a test. Jobs share a blob, and a provider has the lease of every third.
func sample(i int, now time.Time) Job {
	id := fmt.Sprintf("j%04d", i)
	return Job{
		Entry: Entry{
			ID: id, State: "failed", Name: "train", Key: "ci", Created: now.UnixNano(), Tx: "tx" + id,
			Spent: market.Amount(i + 1), Fees: uint64(10 * i),
			Day: spend.DayOf(now), Paid: []Cost{{sign.Key{byte(i % 3)}, market.Amount(i + 1)}},
		},
		Full: map[string]any{"id": id, "ranks": []any{float64(i)}},
		Leases: map[string]Lease{
			"l1": {json.RawMessage(`{"job":"` + id + `"}`), []byte{byte(i)}}, "l2": {json.RawMessage(`{}`), nil},
		},
		Blobs: map[string]Blob{"shared": {Key: "ci", Ended: now}, "of" + id: {Left: true, Ended: now}},
	}
}

func archived(t testingTB, a *Archive, st store.Store, j Job, now time.Time) {
	t.Helper()
	puts, err := Puts(j)
	if err == nil {
		err = st.Write(t.Context(), puts...)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.Add(j.Entry, now)
}

// An archive has the jobs that were added and not removed, and is the same when it is opened again. Sums never become
// less.
func TestArchive(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	rapid.Check(t, func(t *rapid.T) {
		st := store.NewMemory()
		a := open(t, st)
		have, sums, next := map[string]Job{}, Sums{}, 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				j := sample(next, now)
				next++
				archived(t, a, st, j, now)
				have[j.ID], sums = j, Sums{sums.Paid + j.Spent, sums.Fees + j.Fees}
			},
			"remove": func(t *rapid.T) {
				if len(have) == 0 {
					t.Skip("nothing to remove")
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(have))).Draw(t, "job")
				if err := a.Remove(t.Context(), id, maps.Keys(have[id].Blobs)); err != nil {
					t.Fatal(err)
				}
				delete(have, id)
			},
			"open": func(t *rapid.T) { a = open(t, st) },
		})
		check(t, a, have, sums)
		check(t, open(t, st), have, sums)
	})
}

func check(t *rapid.T, a *Archive, have map[string]Job, sums Sums) {
	if a.Len() != len(have) || a.Sums() != sums {
		t.Fatalf("%d jobs and %+v, want %d and %+v", a.Len(), a.Sums(), len(have), sums)
	}
	shared := 0
	if err := a.Blobs(t.Context(), "shared", func(c string, b Blob) {
		if shared++; c != "shared" || b.Left || b.Key != "ci" {
			t.Errorf("blob %s: %+v", c, b)
		}
	}); err != nil || shared != len(have) {
		t.Errorf("%d jobs have the shared blob, want %d: %v", shared, len(have), err)
	}
	for e := range a.Entries() {
		want := have[e.ID].Entry
		want.Paid, want.Day = nil, ""
		if !reflect.DeepEqual(e, want) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	for id, j := range have {
		var full map[string]any
		if err := a.Read(t.Context(), id, &full); err != nil || !reflect.DeepEqual(full, j.Full) || !a.Has(id) {
			t.Errorf("job %s: %v, %v", id, full, err)
		}
		of := map[string]Lease{}
		if err := a.Leases(t.Context(), id, func(lease string, l Lease) error {
			of[lease] = l
			return nil
		}); err != nil || !reflect.DeepEqual(of, j.Leases) {
			t.Errorf("leases of %s: %v, %v", id, of, err)
		}
	}
}

// The leases of a day count on that day alone, also after a restart.
func TestPaidToday(t *testing.T) {
	t.Parallel()
	now, st := time.Now(), store.NewMemory()
	a := open(t, st)
	for i := range 6 {
		archived(t, a, st, sample(i, now), now)
	}
	want := map[sign.Key]market.Amount{{0}: 1 + 4, {1}: 2 + 5, {2}: 3 + 6}
	for name, a := range map[string]*Archive{"at once": a, "opened again": open(t, st)} {
		if got := a.PaidToday(now); !maps.Equal(got, want) && spend.DayOf(now) == spend.DayOf(time.Now()) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := a.PaidToday(now.Add(24 * time.Hour)); len(got) > 0 {
			t.Errorf("%s, tomorrow: %v", name, got)
		}
	}
}

// A job that is not there is not removed, and a crash while one is removed leaves all of it or nothing.
func TestRemove(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, when := range []store.When{store.Before, store.After} {
		disk := store.NewMemory()
		st := store.NewCrashing(disk)
		a := open(t, st)
		archived(t, a, st, sample(1, now), now)
		if err := a.Remove(t.Context(), "other", maps.Keys(map[string]Blob{})); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a job that is not there: %v", err)
		}
		st.CrashAt(st.Count()+1, when)
		err := a.Remove(t.Context(), "j0001", maps.Keys(sample(1, now).Blobs))
		if !errors.Is(err, store.ErrCrashed) || !a.Has("j0001") {
			t.Errorf("a crash: %v", err)
		}
		left := 0
		for _, kind := range []string{entries.Kind(), jobs.Kind(), held.Kind(), blobs.Kind()} {
			if err := disk.List(t.Context(), kind, "", func(string, []byte) error { left++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if want := 6 * int(store.After-when); left != want {
			t.Errorf("crash %v: %d records are left, want %d", when, left, want)
		}
		if got := open(t, disk).Sums(); got != (Sums{2, 10}) {
			t.Errorf("crash %v: sums %+v", when, got)
		}
	}
}
