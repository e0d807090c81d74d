package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// TestParamsBounds checks the largest and smallest value of each parameter, and the next one beyond it.
func TestParamsBounds(t *testing.T) {
	t.Parallel()
	most := 10 * 366 * 24 * time.Hour
	for name, c := range map[string]struct{ good, bad func(*jobs.Params) }{
		"count": {
			func(p *jobs.Params) { p.Count = jobs.MaxRanks }, func(p *jobs.Params) { p.Count = jobs.MaxRanks + 1 },
		},
		"rounds":      {func(p *jobs.Params) { p.Rounds = 10_000 }, func(p *jobs.Params) { p.Rounds = 10_001 }},
		"standbys":    {func(p *jobs.Params) { p.Standbys = 1024 }, func(p *jobs.Params) { p.Standbys = 1025 }},
		"queue":       {func(p *jobs.Params) { p.Queue = 0 }, func(p *jobs.Params) { p.Queue = -1 }},
		"long queue":  {func(p *jobs.Params) { p.Queue = most }, func(p *jobs.Params) { p.Queue = most + 1 }},
		"pull":        {func(p *jobs.Params) { p.Pull = most }, func(p *jobs.Params) { p.Pull = most + 1 }},
		"start":       {func(p *jobs.Params) { p.Start = 0 }, func(p *jobs.Params) { p.Start = -1 }},
		"run":         {func(p *jobs.Params) { p.Run = 1 }, func(p *jobs.Params) { p.Run = 0 }},
		"grace":       {func(p *jobs.Params) { p.Grace = 0 }, func(p *jobs.Params) { p.Grace = -1 }},
		"lostAfter":   {func(p *jobs.Params) { p.LostAfter = most }, func(p *jobs.Params) { p.LostAfter = most + 1 }},
		"backoff":     {func(p *jobs.Params) { p.Restart.Backoff = 0 }, func(p *jobs.Params) { p.Restart.Backoff = -1 }},
		"mostBackoff": {func(p *jobs.Params) {}, func(p *jobs.Params) { p.Restart.MostBackoff = -1 }},
		"restart.max": {func(p *jobs.Params) { p.Restart.Max = 100 }, func(p *jobs.Params) { p.Restart.Max = 101 }},
		"slotMillis": {
			func(p *jobs.Params) { p.SlotMillis = market.MaxSlotMillis },
			func(p *jobs.Params) { p.SlotMillis = market.MaxSlotMillis + 1 },
		},
		"interval": {
			func(p *jobs.Params) { p.Interval = market.MaxLeaseSlots },
			func(p *jobs.Params) { p.Interval = market.MaxLeaseSlots + 1 },
		},
		"a cluster's rounds": {
			func(p *jobs.Params) { p.Cluster = &jobs.Engine{} },
			func(p *jobs.Params) { p.Cluster, p.Rounds = &jobs.Engine{}, 2 },
		},
		"a cluster's reduce": {
			func(p *jobs.Params) { p.Reduce = true },
			func(p *jobs.Params) { p.Cluster, p.Reduce = &jobs.Engine{}, true },
		},
		"idle": {
			func(p *jobs.Params) { p.Idle = most },
			func(p *jobs.Params) { p.Idle = most + 1 },
		},
		"a cluster's idle": {
			func(p *jobs.Params) { p.Idle = time.Minute },
			func(p *jobs.Params) { p.Idle, p.Cluster = time.Minute, &jobs.Engine{} },
		},
		"a guarded job's idle": {
			func(p *jobs.Params) { p.Guarded = true },
			func(p *jobs.Params) { p.Idle, p.Guarded = time.Minute, true },
		},
		"autostop": {
			func(p *jobs.Params) { p.Cluster = &jobs.Engine{Autostop: most} },
			func(p *jobs.Params) { p.Cluster = &jobs.Engine{Autostop: most + 1} },
		},
	} {
		good, bad := plain(1), plain(1)
		c.good(&good)
		c.bad(&bad)
		if err := good.Validate(); err != nil {
			t.Errorf("%s: the last good value: %v", name, err)
		}
		if err := bad.Validate(); !errors.Is(err, jobs.ErrRecord) {
			t.Errorf("%s: a value beyond it: got %v, want ErrRecord", name, err)
		}
	}
}

// TestNames checks that every name of a record can be read back, and that no other text can.
func TestNames(t *testing.T) {
	t.Parallel()
	names[jobs.Phase](t, jobs.Ended)
	names[jobs.RankState](t, jobs.RankStopped)
	names[jobs.Result](t, jobs.ResultStopped)
	names[jobs.Code](t, jobs.CodePeer)
	if got := jobs.Reclaiming.String(); got != "reclaiming" {
		t.Errorf("the last activity is %q", got)
	}
}

func names[E interface {
	~uint8
	fmt.Stringer
	MarshalText() ([]byte, error)
}, P interface {
	*E
	UnmarshalText([]byte) error
}](t *testing.T, last E) {
	t.Helper()
	for e := E(1); e <= last; e++ {
		text, err := e.MarshalText()
		var back E
		if err != nil || P(&back).UnmarshalText(text) != nil || back != e || string(text) != e.String() {
			t.Errorf("%T %d has the name %q, which is read as %d: %v", e, e, text, back, err)
		}
	}
	beyond := last + 1
	if got := beyond.String(); got != fmt.Sprint(uint8(last)+1) {
		t.Errorf("%T beyond the last is %q", last, got)
	}
	for _, text := range []string{beyond.String(), "ENDED", "none"} {
		if err := P(&beyond).UnmarshalText([]byte(text)); !errors.Is(err, jobs.ErrRecord) {
			t.Errorf("%T %q: got %v, want ErrRecord", last, text, err)
		}
	}
}

// TestAccountInAnyOrder checks that a job ends once its account is counted, released and anchored, whatever comes first,
// and not before; without receipts nothing is anchored.
func TestAccountInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, receipts := range []uint64{0, 3} {
		reports := []jobs.Event{
			jobs.AccountCounted{Owed: 9, Receipts: receipts}, jobs.EscrowReleased{Paid: 9}, jobs.ReceiptsAnchored{Tx: "t"},
		}
		if receipts == 0 {
			reports = reports[:2]
		}
		permute(reports, func(order []jobs.Event) {
			s := running(t, plain(1))
			x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: 1}
			s, fx := take(t, s, jobs.ExecutionExited{Exec: x}, jobs.OutputsGathered{Exec: x})
			end := one[jobs.EndLease](t, fx)
			s, _ = take(t, s, jobs.LeaseCost{Lease: end.Chain, Most: 9})
			if s, fx = take(t, s, jobs.LeaseCost{Lease: end.Chain, Most: 9, Settled: true}); s.Phase != jobs.Settling {
				t.Fatalf("the job is %s", s.Phase)
			}
			one[jobs.CloseAccount](t, fx)
			for i, ev := range order {
				if s.Phase == jobs.Ended {
					t.Errorf("the job has ended after %+v", order[:i])
				}
				s, _ = take(t, s, ev, ev) // reported twice
			}
			a := s.Account
			if s.Phase != jobs.Ended || a.Owed != 9 || a.Paid != 9 || a.Receipts != receipts || s.Ended.IsZero() {
				t.Errorf("%s, %+v after %+v", s.Phase, a, order)
			}
		})
	}
}

// permute calls f with each order of the events.
func permute(events []jobs.Event, f func([]jobs.Event)) {
	var rest func(done, left []jobs.Event)
	rest = func(done, left []jobs.Event) {
		if len(left) == 0 {
			f(done)
		}
		for i := range left {
			rest(append(slices.Clone(done), left[i]), slices.Delete(slices.Clone(left), i, i+1))
		}
	}
	rest(nil, events)
}

// TestSizes checks the answers to requests for another size, and the budget that each leaves.
func TestSizes(t *testing.T) {
	t.Parallel()
	p := plain(2)
	p.Cluster, p.Budget = &jobs.Engine{HeadEnds: true}, 1<<20
	for _, c := range []struct {
		name   string
		req    jobs.ScaleRequested
		answer bool // at once
		err    error
		budget market.Amount
	}{
		{"the same", jobs.ScaleRequested{Req: 1, Count: 2}, true, nil, 1 << 20},
		{"the same, more money", jobs.ScaleRequested{Req: 1, Count: 2, Budget: 1 << 21}, true, nil, 1 << 21},
		{"the same, less money", jobs.ScaleRequested{Req: 1, Count: 2, Budget: 1 << 19}, true, jobs.ErrBudget, 1 << 20},
		{"more, less money", jobs.ScaleRequested{Req: 1, Count: 3, Budget: 1 << 19}, true, jobs.ErrBudget, 1 << 20},
		{"more", jobs.ScaleRequested{Req: 1, Count: 3}, false, nil, 1 << 20},
		{"more, more money", jobs.ScaleRequested{Req: 1, Count: 3, Budget: 1 << 21}, false, nil, 1 << 21},
		{"less", jobs.ScaleRequested{Req: 1, Count: 1}, false, nil, 1 << 20},
	} {
		s, fx := take(t, running(t, p), c.req)
		answers := 0
		for _, e := range fx {
			if a, ok := e.(jobs.Answer); ok {
				answers++
				if !errors.Is(a.Err, c.err) {
					t.Errorf("%s: answer %v, want %v", c.name, a.Err, c.err)
				}
			}
		}
		if (answers == 1) != c.answer || s.Params.Budget != c.budget || (s.Scale != nil) == c.answer {
			t.Errorf("%s: %d answers, budget %d, scale %+v", c.name, answers, s.Params.Budget, s.Scale)
		}
		if !c.answer { // one at a time
			_, fx = take(t, s, jobs.ScaleRequested{Req: 2, Count: 5})
			if a := one[jobs.Answer](t, fx); a.Req != 2 || !errors.Is(a.Err, jobs.ErrBusy) {
				t.Errorf("%s: a second request: %+v", c.name, a)
			}
		}
	}
}
