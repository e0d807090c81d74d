package spend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6}

// jobs is a Jobs of fixed jobs.
type jobs []Job

func (j jobs) Counted(since string) (out []Job) {
	for _, x := range j {
		if DayOf(x.Created) >= since {
			out = append(out, x)
		}
	}
	return out
}

func (jobs) ProvidersToday() []Provider { return []Provider{{sign.Key{1}, 7}} }

func load(t *testing.T, s store.Store, l Limits, all jobs) *Ledger {
	t.Helper()
	k, err := Load(t.Context(), s, genesis, l, all)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Keys are found by their token, survive a restart, and are gone once removed.
func TestKeys(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	k := load(t, st, Limits{}, nil)
	for _, bad := range []string{"", "-ci", "CI", "a b", strings.Repeat("a", 64)} {
		if _, _, err := k.AddKey(t.Context(), bad, Limits{}); !errors.Is(err, ErrKey) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	made, token, err := k.AddKey(t.Context(), "ci", Limits{PerJob: 5})
	if err != nil || made.Name != "ci" {
		t.Fatal(made, err)
	}
	if _, _, err := k.AddKey(t.Context(), "ci", Limits{}); !errors.Is(err, ErrKey) {
		t.Errorf("a second key of the name: %v", err)
	}
	k = load(t, st, Limits{}, nil)
	if name, ok := k.KeyOf(token); !ok || name != "ci" || len(k.Keys()) != 1 || k.Keys()[0].Limits.PerJob != 5 {
		t.Errorf("after a restart: %q, %v, %+v", name, ok, k.Keys())
	}
	for _, wrong := range []string{"", token + "x", strings.TrimPrefix(token, tokenPrefix)} {
		if name, ok := k.KeyOf(wrong); ok {
			t.Errorf("token %q is of key %q", wrong, name)
		}
	}
	if err := k.RemoveKey(t.Context(), "other"); !errors.Is(err, ErrKey) {
		t.Errorf("removing an unknown key: %v", err)
	}
	if err := k.RemoveKey(t.Context(), "ci"); err != nil || len(k.Keys()) > 0 || len(load(t, st, Limits{}, nil).Keys()) > 0 {
		t.Errorf("removed: %v, %+v", err, k.Keys())
	}
}

// full is a journal that takes nothing.
type full struct{ store.Store }

func (full) Write(context.Context, ...store.Put) error { return store.ErrFull }

// A key exists once the journal has it, and of many of one name that are added at once one exists.
func TestKeysAtOnce(t *testing.T) {
	t.Parallel()
	k := load(t, full{store.NewMemory()}, Limits{}, nil)
	if _, _, err := k.AddKey(t.Context(), "ci", Limits{}); !errors.Is(err, store.ErrFull) || len(k.Keys()) > 0 {
		t.Errorf("%v, %+v", err, k.Keys())
	}
	k = load(t, store.NewMemory(), Limits{}, nil)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = k.AddKey(t.Context(), "ci", Limits{PerJob: market.Amount(i + 1)}) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.Is(err, ErrKey) {
			t.Error(err)
		}
	}
	if made != 1 || len(k.Keys()) != 1 {
		t.Errorf("%d keys were made, %+v exist", made, k.Keys())
	}
}

// A job is within limits to the last unit, of the peer and of its key, beside the other jobs of the day.
func TestCheck(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	day := []Job{
		{ID: "a", Created: now, Cost: 10}, {ID: "b", Key: "ci", Created: now, Cost: 20, Ended: true},
		{ID: "c", Key: "ci", Created: now.AddDate(0, 0, -1), Cost: 500},
	}
	for name, c := range map[string]struct {
		peer, key Limits
		r         Request
		refused   string
	}{
		"no limit":            {Limits{}, Limits{}, Request{Cost: 1 << 40, Today: 1 << 40}, ""},
		"per job":             {Limits{PerJob: 7}, Limits{}, Request{Cost: 7, Today: 7}, ""},
		"over it":             {Limits{PerJob: 6}, Limits{}, Request{Cost: 7, Today: 7}, "this peer may spend 0.000006 STAR per job"},
		"the day":             {Limits{PerDay: 40}, Limits{}, Request{Cost: 10, Today: 10}, ""},
		"over the day":        {Limits{PerDay: 39}, Limits{}, Request{Cost: 10, Today: 10}, "0.000009 STAR are left until 00:00 UTC, in 6h0m0s"},
		"a job that changes":  {Limits{PerDay: 40}, Limits{}, Request{ID: "b", Cost: 30, Today: 30}, ""},
		"one of another day":  {Limits{PerDay: 35}, Limits{}, Request{ID: "c", Cost: 505, Today: 5}, ""},
		"the key's day":       {Limits{}, Limits{PerDay: 25}, Request{Key: "ci", Cost: 5, Today: 5}, ""},
		"over the key's day":  {Limits{PerDay: 40}, Limits{PerDay: 25}, Request{Key: "ci", Cost: 6, Today: 6}, "that key ci may spend"},
		"over the key's job":  {Limits{}, Limits{PerJob: 5}, Request{Key: "ci", Cost: 6, Today: 6}, "key ci may spend"},
		"the peer's token":    {Limits{}, Limits{PerJob: 5}, Request{Cost: 6, Today: 6}, ""},
		"used up long before": {Limits{PerDay: 5}, Limits{}, Request{Cost: 1, Today: 1}, "0 STAR are left"},
	} {
		k := load(t, store.NewMemory(), c.peer, nil)
		if _, _, err := k.AddKey(t.Context(), "ci", c.key); err != nil {
			t.Fatal(err)
		}
		err := k.Check(c.r, day, now)
		if (err == nil) != (c.refused == "") || err != nil && (!errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
		if err := k.Check(Request{Key: "gone"}, day, now); !errors.Is(err, ErrKey) {
			t.Errorf("%s: an unknown key: %v", name, err)
		}
	}
}

// One more lease of a provider is within its day to the last unit.
func TestOverProvider(t *testing.T) {
	t.Parallel()
	k := load(t, store.NewMemory(), Limits{PerProviderPerDay: 10}, nil)
	if why := k.OverProvider(4, 6); why != "" {
		t.Error(why)
	}
	if why := k.OverProvider(4, 7); !strings.Contains(why, "of 0.00001 STAR per day 0.000006 STAR are left") {
		t.Error(why)
	}
	if why := load(t, store.NewMemory(), Limits{}, nil).OverProvider(4, 1<<60); why != "" {
		t.Error(why)
	}
}

// A report sums jobs up by day and key, and shows a key nothing of another.
func TestSpending(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := load(t, store.NewMemory(), Limits{PerDay: 9}, jobs{
		{ID: "a", Created: now, Cost: 10, Fees: 1}, {ID: "b", Created: now, Cost: 5, Ended: true, Fees: 1},
		{ID: "c", Key: "ci", Created: now, Cost: 7}, {ID: "d", Created: now.AddDate(0, 0, -1), Cost: 3, Ended: true},
		{ID: "e", Created: now.AddDate(0, 0, -2), Cost: 1000},
	})
	for _, name := range []string{"ci", "dev"} {
		if _, _, err := k.AddKey(t.Context(), name, Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	all := k.Spending(2, "", true)
	today, before := DayOf(now), DayOf(now.AddDate(0, 0, -1))
	want := fmt.Sprint([]Day{{today, "", 2, 5, 10, 2}, {today, "ci", 1, 0, 7, 0}, {before, "", 1, 3, 0, 0}})
	if fmt.Sprint(all.Days) != want || len(all.Keys) != 2 || len(all.Providers) != 1 || all.Limits.PerDay != 9 {
		t.Errorf("%+v, want days %s", all, want)
	}
	mine := k.Spending(2, "ci", false)
	if fmt.Sprint(mine.Days) != fmt.Sprint([]Day{{today, "ci", 1, 0, 7, 0}}) || len(mine.Keys) != 1 || len(mine.Providers) > 0 {
		t.Errorf("%+v", mine)
	}
}
