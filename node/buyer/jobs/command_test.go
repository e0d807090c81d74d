package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// take steps a state through events, and returns the effects of the last one.
func take(t *testing.T, s jobs.State, events ...jobs.Event) (jobs.State, []jobs.Effect) {
	t.Helper()
	var fx []jobs.Effect
	for _, ev := range events {
		next, out, err := s.Step(jobs.Now{Time: epoch.Add(time.Second), Slot: 1010}, ev)
		if err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
		s, fx = next, out
	}
	return s, fx
}

// one returns the only effect of a type.
func one[E jobs.Effect](t *testing.T, fx []jobs.Effect) (found E) {
	t.Helper()
	n := 0
	for _, f := range fx {
		if e, ok := f.(E); ok {
			found, n = e, n+1
		}
	}
	if n != 1 {
		t.Fatalf("%d effects %T: %+v", n, found, fx)
	}
	return found
}

// TestStandbysOnly checks that a guardian orders standbys alone, also before the job has started: it has no other money
// for it. An owner orders anybody until then.
func TestStandbysOnly(t *testing.T) {
	t.Parallel()
	p := plain(2)
	p.Guarded, p.Standbys = true, 1
	now := jobs.Now{Time: epoch, Slot: 1000}
	owner, _ := jobs.New(p, true, now)
	if _, fx := take(t, owner, jobs.GuardiansEngaged{Epoch: 1}); one[jobs.OrderGang](t, fx).Standby {
		t.Error("the first order of an owner is for standbys")
	}
	guardian, fx := jobs.New(p, false, now)
	if len(fx) > 0 {
		t.Errorf("a guardian begins with %+v", fx)
	}
	if _, fx = take(t, guardian, jobs.CommandGranted{Epoch: 2}); !one[jobs.OrderGang](t, fx).Standby {
		t.Error("a guardian orders more than standbys")
	}
}

// TestMergeOtherConfiguration checks that a peer waits for silent providers as its own configuration says.
func TestMergeOtherConfiguration(t *testing.T) {
	t.Parallel()
	own, theirs := guardedPair(t)
	own.Command.Owner = false
	theirs.Params.LostAfter *= 2
	got, err := jobs.Merge(own, encode(t, theirs), true)
	if err != nil || got.Params.LostAfter != own.Params.LostAfter || got.Command != own.Command {
		t.Errorf("%+v, %v", got.Params, err)
	}
}

// TestRestartedGuardian checks that a guardian that was restarted does nothing for a job, whatever its phase, until it is
// appointed. An owner goes on to settle.
func TestRestartedGuardian(t *testing.T) {
	t.Parallel()
	for _, owner := range []bool{true, false} {
		own, _ := guardedPair(t)
		own.Command.Owner, own.Phase, own.Outcome = owner, jobs.Settling, jobs.Outcome{Result: jobs.ResultStopped}
		leases := leasesOf(own)
		s, fx := take(t, own, jobs.Recovered{Leases: leases})
		ends := 0
		for _, f := range fx {
			if _, ok := f.(jobs.EndLease); ok {
				ends++
			}
		}
		if s.Command.Lost == owner || owner != (ends == len(leases)) || !owner && len(fx) > 0 {
			t.Errorf("owner %v: lost %v, effects %+v", owner, s.Command.Lost, fx)
		}
		if !owner {
			if _, fx = take(t, s, jobs.CommandGranted{Epoch: 1, Leases: leases}); len(fx) < len(leases) {
				t.Errorf("after it was appointed: %+v", fx)
			}
		}
	}
}

// TestFailureNamesTheLimit checks that a rank that ended at a limit of its units says which flag raises it.
func TestFailureNamesTheLimit(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"oom":  "rank 0 ended with exit code 137, oom; its units have too little memory: ask for more with resources.memory (--memory)",
		"disk": "rank 0 ended with exit code 137, disk; its units have too little disk: ask for more with resources.disk (--disk)",
		"":     "rank 0 ended with exit code 137; `starling logs`",
	} {
		s := running(t, plain(1))
		x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: s.Ranks[0].Seq}
		exit := jobs.Exit{Code: 137, Reason: reason}
		s, _ = take(t, s, jobs.ExecutionExited{Exec: x, Exit: exit}, jobs.OutputsGathered{Exec: x})
		if !strings.HasPrefix(s.Outcome.Reason, want) {
			t.Errorf("%q: %s", reason, s.Outcome.Reason)
		}
	}
}

// TestShare checks that ranks which are replaced at the same time share what is left.
func TestShare(t *testing.T) {
	t.Parallel()
	p := plain(2)
	p.Budget, p.Run = 20_000, time.Hour
	s := running(t, p) // all is promised
	var lost []jobs.Event
	for i := range s.Ranks {
		lost = append(lost, jobs.LeaseLost{Chain: s.Ranks[i].Lease, Cause: jobs.CauseDefaulted})
	}
	lost = append(lost, jobs.LeaseCost{Lease: s.Ranks[0].Lease, Most: 0, Settled: true})
	chain := s.Ranks[1].Lease
	_, fx := take(t, s, append(lost, jobs.LeaseCost{Lease: chain, Most: 0, Settled: true})...)
	var sum market.Amount
	seats := 0
	for _, f := range fx {
		if o, ok := f.(jobs.OrderGang); ok {
			seats, sum = seats+len(o.Seats), sum+o.Cap
			if o.Cap != p.Budget/2*market.Amount(len(o.Seats)) {
				t.Errorf("an order of %d for %d ranks", o.Cap, len(o.Seats))
			}
		}
	}
	if seats != 2 || sum > p.Budget {
		t.Errorf("orders of %d ranks for %d", seats, sum)
	}
}
