package jobs_test

import (
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// TestFirstOrder checks how long the first leases may last, and what they cost together.
func TestFirstOrder(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(*jobs.Params)
		slots  uint64
		cost   market.Amount // 0: the job fails at once
	}{
		{"as long as the job and two intervals", func(*jobs.Params) {}, 1220, 2440},
		{"as the budget pays for all ranks", func(p *jobs.Params) { p.Budget = 1001 }, 500, 1000},
		{"standbys have their share", func(p *jobs.Params) { p.Budget, p.Guarded, p.Standbys = 1000, true, 2 }, 250, 500},
		{"an interval each", func(p *jobs.Params) { p.Budget = 20 }, 10, 20},
		{"less than an interval", func(p *jobs.Params) { p.Budget = 19 }, 0, 0},
		{"no money", func(p *jobs.Params) { p.Budget = 0 }, 0, 0},
		{"a rate below one", func(p *jobs.Params) { p.Rate, p.Budget = 1, 2 }, 1220, 0},
		{"the highest rate", func(p *jobs.Params) { p.Rate, p.Budget = 1<<64-1, 1<<64-1 }, 1220, 45010055539851304},
		{"slots that do not divide a second", func(p *jobs.Params) { p.SlotMillis = 450 }, 287, 574},
	}
	for _, c := range cases {
		p := plain(2)
		c.change(&p)
		s, fx := jobs.New(p, true, jobs.Now{Time: epoch})
		if p.Guarded {
			s, fx, _ = s.Step(jobs.Now{Time: epoch}, jobs.GuardiansEngaged{Epoch: 1})
		}
		var order jobs.OrderGang
		for _, e := range fx {
			if o, ok := e.(jobs.OrderGang); ok {
				order = o
			}
		}
		if order.Slots != c.slots || order.Cap != c.cost {
			t.Errorf("%s: %d slots for %d, want %d for %d", c.name, order.Slots, order.Cap, c.slots, c.cost)
		}
		if failed := s.Outcome.Code == jobs.CodePayment; failed != (c.slots == 0) {
			t.Errorf("%s: outcome %+v", c.name, s.Outcome)
		}
		if s.Promised() != order.Cap {
			t.Errorf("%s: %d are promised, want %d", c.name, s.Promised(), order.Cap)
		}
	}
}

// TestJitter checks that orders which fail are repeated between an eighth and three eighths of a second later, each time
// after a longer pause up to 3 s, and that two jobs do not meet again.
func TestJitter(t *testing.T) {
	t.Parallel()
	pauses := map[time.Duration]bool{}
	for seed := range uint64(32) {
		p := plain(1)
		p.Seed, p.Queue = seed<<40, time.Hour
		now := jobs.Now{Time: epoch}
		s, _ := jobs.New(p, true, now)
		for n := range 12 {
			s, _, _ = s.Step(now, jobs.GangFailed{Gang: jobs.GangID(n + 1), Why: jobs.GangShort, Reason: "short"})
			pause := s.Next().Sub(now.Time)
			least := time.Duration(min(n+1, 8)) * 125 * time.Millisecond
			if pause < least || pause > 3*least {
				t.Fatalf("order %d is repeated after %v, want %v to %v", n+1, pause, least, 3*least)
			}
			if n == 0 {
				pauses[pause] = true
			}
			now.Time = now.Time.Add(pause)
			var fx []jobs.Effect
			s, fx, _ = s.Step(now, jobs.Ticked{})
			if len(fx) != 1 || fx[0].(jobs.OrderGang).Gang != jobs.GangID(n+2) {
				t.Fatalf("after the pause: %v", fx)
			}
		}
	}
	if len(pauses) < 16 {
		t.Errorf("32 jobs have %d different pauses", len(pauses))
	}
}

// TestBackoff checks the pauses between restarts of a program.
func TestBackoff(t *testing.T) {
	t.Parallel()
	p := plain(1)
	p.Restart = jobs.Restart{Max: 100, Always: true, Backoff: time.Second, MostBackoff: 10 * time.Second}
	p.Run = time.Hour
	s, now := running(t, p), jobs.Now{Time: epoch, Slot: 1000}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: uint64(i + 1)}
		s, _, _ = s.Step(now, jobs.ExecutionExited{Exec: x, Exit: jobs.Exit{Code: 1}})
		s, _, _ = s.Step(now, jobs.OutputsGathered{Exec: x})
		if pause := s.Next().Sub(now.Time); pause != want*time.Second {
			t.Errorf("restart %d is after %v, want %v s", i+1, pause, int(want))
		}
		now.Time = s.Next()
		s, _, _ = s.Step(now, jobs.Ticked{})
	}
	p.Restart.Backoff = 0
	s = running(t, p)
	x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: 1}
	s, _, _ = s.Step(now, jobs.ExecutionExited{Exec: x})
	if s, _, _ = s.Step(now, jobs.OutputsGathered{Exec: x}); s.Ranks[0].Seq != 2 {
		t.Errorf("without backoff: execution %d, want 2", s.Ranks[0].Seq)
	}
}

// TestLossesAreBounded checks restart.max, and that a fault is reported for the provider's own causes alone.
func TestLossesAreBounded(t *testing.T) {
	t.Parallel()
	codes := map[jobs.Cause]jobs.Code{jobs.CauseLate: jobs.CodeTimeout, jobs.CauseExpired: jobs.CodeTimeout}
	for cause := jobs.CauseSilent; cause <= jobs.CauseVoid; cause++ {
		p := plain(1)
		p.Restart.Max = 0
		s, now := running(t, p), jobs.Now{Time: epoch, Slot: 1000}
		s, fx, _ := s.Step(now, jobs.LeaseLost{Chain: s.Ranks[0].Lease, Cause: cause, Reason: "lost"})
		code, ok := codes[cause]
		if !ok {
			code = jobs.CodeLost
		}
		if s.Outcome.Code != code || s.Ranks[0].Losses != 1 {
			t.Errorf("cause %d: outcome %+v, want code %s", cause, s.Outcome, code)
		}
		fault := false
		for _, e := range fx {
			_, reported := e.(jobs.ReportFault)
			fault = fault || reported
		}
		if fault != (cause <= jobs.CauseDefaulted) {
			t.Errorf("cause %d: fault %t", cause, fault)
		}
		if avoided := len(s.Avoid) == 1; avoided != (cause != jobs.CauseAbsent) {
			t.Errorf("cause %d: avoided %t", cause, avoided)
		}
	}
}

// TestDone checks when a runner can be closed.
func TestDone(t *testing.T) {
	t.Parallel()
	open := []jobs.Lease{{Open: true}}
	cases := []struct {
		name string
		s    jobs.State
		want bool
	}{
		{"ended", jobs.State{Phase: jobs.Ended}, true},
		{"an owner settles", jobs.State{Phase: jobs.Settling, Command: jobs.Command{Owner: true}}, false},
		{"an owner waits for command", jobs.State{Phase: jobs.Working, Command: jobs.Command{Owner: true, Epoch: 1, Lost: true}}, false},
		{"a guardian is not yet granted command", jobs.State{Phase: jobs.Placing, Command: jobs.Command{Lost: true}}, false},
		{"a guardian works", jobs.State{Phase: jobs.Working, Command: jobs.Command{Epoch: 2}}, false},
		{"a guardian lost command", jobs.State{Phase: jobs.Working, Command: jobs.Command{Epoch: 2, Lost: true}}, true},
		{"a guardian ends leases", jobs.State{Phase: jobs.Settling, Command: jobs.Command{Epoch: 2}, Leases: open}, false},
		{"a guardian awaits a gang", jobs.State{Phase: jobs.Settling, Command: jobs.Command{Epoch: 2}, Gangs: make([]jobs.Gang, 1)}, false},
		{"a guardian has settled", jobs.State{Phase: jobs.Settling, Command: jobs.Command{Epoch: 2}}, true},
	}
	for _, c := range cases {
		if got := c.s.Done(); got != c.want {
			t.Errorf("%s: done %t, want %t", c.name, got, c.want)
		}
	}
}

// TestAvoidIsBounded checks that a long job forgets the oldest of the providers that it avoids.
func TestAvoidIsBounded(t *testing.T) {
	t.Parallel()
	s, now := running(t, plain(4)), jobs.Now{Time: epoch, Slot: 1000}
	for i := range 1024 {
		s.Avoid = append(s.Avoid, sign.Key{byte(i), byte(i >> 8), 9})
	}
	for _, r := range s.Ranks {
		s, _, _ = s.Step(now, jobs.LeaseLost{Chain: r.Lease, Cause: jobs.CauseDefaulted})
	}
	if len(s.Avoid) != 1024 || s.Avoid[0] != (sign.Key{4, 0, 9}) {
		t.Errorf("%d providers are avoided, the first %v", len(s.Avoid), s.Avoid[0][:3])
	}
}
