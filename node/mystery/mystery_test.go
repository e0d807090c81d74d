package mystery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/exclusive"
	"pgregory.net/rapid"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 25, Simulated: true}

func task() Task {
	return Task{Expect: map[string]string{"/out": "bafkout"}, Spec: job.Job{
		Name: "primes", Runtime: "wasm", Module: "primes.wasm", Args: []string{"100"}, Count: 1, Resources: job.Resources{Class: "cpu", Units: 1},
		Outputs: []job.Output{{Path: "/out"}}, Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour}, Restart: job.Restart{Max: 1, Policy: job.RestartNever},
		Payment: job.Payment{MaxPrice: 1, Budget: 1, Decimals: 6},
	}}
}

func order(n byte) market.Order {
	return market.Order{Buyer: sign.Key{n}, Class: "cpu", Count: 2, UnitsPer: 3, Min: market.Resources{MemoryMiB: 100}, Runtime: "wasm", Slots: 9000, Ceiling: 50_000, Regions: []market.Region{"eu"}}
}

// TestPurse: whatever is asked for, in whatever order, with power lost at any write, no day costs more than its allowance.
func TestPurse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mem := store.NewMemory()
		perDay := market.Amount(rapid.Uint64Range(0, 1000).Draw(t, "per day"))
		made := map[string]market.Amount{}
		for i := range rapid.IntRange(1, 30).Draw(t, "purchases") {
			var st store.Store = mem
			lost := rapid.Bool().Draw(t, "power is lost after the write")
			p := &purse{store: st, perDay: perDay} // a process of its own
			at := time.Unix(rapid.Int64Range(0, 3*86400).Draw(t, "at"), 0)
			most := market.Amount(rapid.Uint64Range(0, 600).Draw(t, "most"))
			err := p.reserve(t.Context(), at, most, fmt.Sprint(i), []byte("{}"))
			if err != nil && !errors.Is(err, ErrSpent) {
				t.Fatal(err)
			}
			if err == nil && !lost { // then the job is handed in, and may cost all of it
				made[day(at)] += most
			}
			if made[day(at)] > perDay {
				t.Fatalf("%d of %d", made[day(at)], perDay)
			}
		}
	})
}

// A purchase looks like the order that it is drawn from in all that an order says, and like its task in all that a program is.
func TestShape(t *testing.T) {
	t.Parallel()
	o := order(9)
	spec, i, ok := draw(genesis, []Task{task()}, []market.Order{o}, 1e12, nil, rand.New(rand.NewPCG(1, 2)))
	if !ok || i != 0 {
		t.Fatal("nothing was drawn")
	}
	r := spec.Resources
	if r.Class != o.Class || r.Units != o.UnitsPer || spec.Count != o.Count || r.PerUnit != o.Min || spec.Payment.MaxPrice != o.Ceiling ||
		spec.Timeouts.Run != time.Hour || !reflect.DeepEqual(spec.Placement.Regions, o.Regions) || len(spec.Placement.Exclude) > 0 || spec.Probes != job.ProbesWarn {
		t.Errorf("%+v", spec)
	}
	if cost, err := spec.MaxCost(); err != nil || spec.Payment.Budget != cost {
		t.Errorf("budget %d, cost %d, %v", spec.Payment.Budget, cost, err)
	}
	want := task().Spec
	if spec.Module != want.Module || !reflect.DeepEqual(spec.Args, want.Args) || spec.Name != want.Name {
		t.Errorf("%+v", spec)
	}
	gpu := o
	gpu.Class = "gpu/h100"
	for what, none := range map[string]func() bool{
		"of another class": func() bool {
			_, _, ok := draw(genesis, []Task{task()}, []market.Order{gpu}, 1e12, nil, rand.New(rand.NewPCG(1, 2)))
			return ok
		},
		"too dear": func() bool {
			_, _, ok := draw(genesis, []Task{task()}, []market.Order{o}, 1, nil, rand.New(rand.NewPCG(1, 2)))
			return ok
		},
		"its own": func() bool {
			_, _, ok := draw(genesis, []Task{task()}, []market.Order{o}, 1e12, map[sign.Key]bool{{9}: true}, rand.New(rand.NewPCG(1, 2)))
			return ok
		},
	} {
		if none() {
			t.Errorf("drawn from an order %s", what)
		}
	}
}

// book remembers what it is told.
type book struct{ filed, failed []sign.Key }

func (b *book) File(l market.Lease, _ verify.Receipt)      { b.filed = append(b.filed, l.Core.Provider) }
func (b *book) Failed(c market.LeaseCore, _ market.Amount) { b.failed = append(b.failed, c.Provider) }

// fake rents from one provider, well or badly.
type fake struct {
	submitted map[string]int
	rank      buyer.Rank
	provider  sign.Key
}

func (f *fake) lease() market.Lease {
	return market.Lease{Core: market.LeaseCore{Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: sign.NewPrivate([32]byte{8}).Key(), Provider: f.provider,
		Payout: f.provider, Rate: 1_000_000, Cap: 9000, Start: 10, ActivateBefore: 20, End: 9010}}
}

func (f *fake) Submit(_ context.Context, once string, spec job.Job) (buyer.Job, error) {
	f.submitted[once]++
	return buyer.Job{ID: once, Spec: spec}, nil
}

func (f *fake) Wait(_ context.Context, id string) (buyer.Job, error) {
	r := f.rank
	r.Lease, r.Provider = f.lease().Core.ID(), f.provider
	return buyer.Job{ID: id, State: buyer.Succeeded, Ranks: []buyer.Rank{r}}, nil
}

func (f *fake) Receipts(context.Context, string) ([]buyer.LeaseAccount, error) {
	l := f.lease()
	return []buyer.LeaseAccount{{Lease: l.Core.ID(), Provider: f.provider, Active: true, Signed: l.Marshal(),
		Receipts: []verify.Receipt{{ReceiptCore: verify.ReceiptCore{Lease: l.Core.ID(), Cumulative: 70}}}}}, nil
}

func (f *fake) Probes(context.Context, string) ([]exclusive.Record, error) {
	return []exclusive.Record{{Question: exclusive.Question{Execution: 1, Shape: exclusive.Fit(exclusive.CPU, 0)}, Openings: []byte{}}}, nil
}

func (f *fake) Close() error { return nil }

func TestRentals(t *testing.T) {
	t.Parallel()
	provider := sign.NewPrivate([32]byte{7}).Key()
	good := buyer.Rank{State: buyer.RankDone, Outputs: []buyer.Output{{Path: "/out", Blob: buyer.Blob{CID: "bafkout"}}}}
	lease := (&fake{provider: provider}).lease().Core.ID()
	for what, c := range map[string]struct {
		rank  buyer.Rank
		fault string
	}{
		"well":          {good, ""},
		"wrong result":  {buyer.Rank{State: buyer.RankDone, Outputs: []buyer.Output{{Path: "/out", Blob: buyer.Blob{CID: "bafkother"}}}}, "its result is not what the program gives"},
		"wrong answers": {buyer.Rank{State: buyer.RankDone, Outputs: good.Outputs, Exclusive: &buyer.Exclusive{Lease: lease, Wrong: 1}}, "1 wrong answers to probes"},
		"shared":        {buyer.Rank{State: buyer.RankDone, Outputs: good.Outputs, Exclusive: &buyer.Exclusive{Lease: lease, Watch: exclusive.Watch{Alarms: 2}}}, "its units are shared: "},
		"one alarm":     {buyer.Rank{State: buyer.RankDone, Outputs: good.Outputs, Exclusive: &buyer.Exclusive{Lease: lease, Watch: exclusive.Watch{Alarms: 1}}}, ""},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "one"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "one", node.FileIdentity), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r, b, demand := &fake{submitted: map[string]int{}, rank: c.rank, provider: provider}, &book{}, &Demand{}
		demand.Heard(order(3))
		cfg := Config{Dir: dir, Genesis: genesis, Self: sign.Key{1}, PerDay: 1e12, Tasks: []Task{task()}, Demand: demand, Book: b, Store: store.NewMemory(),
			Open: func(context.Context, string) (Renter, error) { return r, nil }, Log: slog.New(slog.DiscardHandler)}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range MaxUses {
			p, err := s.choose(t.Context(), time.Now())
			if err != nil {
				t.Fatal(what, err)
			}
			if err := s.buy(t.Context(), p); err != nil {
				t.Fatal(what, err)
			}
		}
		if _, err := s.choose(t.Context(), time.Now()); !errors.Is(err, errNothing) {
			t.Errorf("%s: an identity was used more than %d times: %v", what, MaxUses, err)
		}
		all, err := s.Purchases(t.Context())
		if err != nil || len(all) != MaxUses || !all[0].Done || len(all[0].Findings) != 1 || all[0].Findings[0].Paid != 70 {
			t.Fatalf("%s: %+v, %v", what, all, err)
		}
		if got := all[0].Findings[0].Fault; got != c.fault {
			t.Errorf("%s: %q", what, got)
		}
		if len(b.filed) != MaxUses || (len(b.failed) > 0) != (c.fault != "") {
			t.Errorf("%s: filed %d, failed %d", what, len(b.filed), len(b.failed))
		}
		held := 0
		if err := s.cfg.Store.List(t.Context(), kindHeld, "", func(string, []byte) error { held++; return nil }); err != nil || held != MaxUses {
			t.Errorf("%s: %d records of probes are kept, %v", what, held, err)
		}
		// A process that died after the reservation hands the same job in again, once.
		again, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p := all[0]
		p.Done = false
		again.rent(t.Context(), p)
		if r.submitted[p.ID] != 2 {
			t.Errorf("%s: handed in as %v", what, r.submitted)
		}
	}
}

func TestTasksSayTheirResult(t *testing.T) {
	t.Parallel()
	bad := task()
	bad.Expect = nil
	if _, err := New(Config{Tasks: []Task{bad}, PerDay: 1}); err == nil {
		t.Error("a task of no known result was taken")
	}
	if _, err := New(Config{Tasks: []Task{task()}}); err == nil {
		t.Error("no allowance was taken")
	}
}
