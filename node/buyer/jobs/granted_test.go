package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// TestGrantedStanding checks which state a supervisor goes on from: the one that the last supervisor left, if it is
// ahead of the own one; of the own one it keeps command, orders and a stop.
func TestGrantedStanding(t *testing.T) {
	t.Parallel()
	reducing := func(s *jobs.State) { s.Phase, s.Params.Reduce = jobs.Reducing, true }
	stopping := func(result jobs.Result) func(*jobs.State) {
		return func(s *jobs.State) { s.Phase, s.Outcome = jobs.Stopping, jobs.Outcome{Result: result} }
	}
	for _, c := range []struct {
		name        string
		own, theirs func(*jobs.State)
		taken       bool
	}{
		{"the same phase, a later round", func(*jobs.State) {}, func(*jobs.State) {}, true},
		{"a later phase", func(*jobs.State) {}, stopping(jobs.ResultSucceeded), true},
		{"the next round", reducing, func(s *jobs.State) { s.Params.Reduce = true }, true},
		{"an earlier phase", stopping(jobs.ResultSucceeded), func(*jobs.State) {}, false},
	} {
		own, theirs := guardedPair(t)
		theirs.Round, theirs.Carry = 1, jobs.File{CID: "carry"}
		c.own(&own)
		c.theirs(&theirs)
		own.Command.Lost = true
		s, _ := take(t, own, jobs.CommandGranted{Epoch: 3, Theirs: &theirs, Leases: leasesOf(own)})
		if taken := s.Round == 1 && s.Carry.CID == "carry"; taken != c.taken {
			t.Errorf("%s: the standing is taken: %v, want %v (round %d)", c.name, taken, c.taken, s.Round)
		}
		if s.Command.Epoch != 3 || s.Command.Lost || s.Command.Owner != own.Command.Owner || s.Placed != own.Placed {
			t.Errorf("%s: command %+v, order %d", c.name, s.Command, s.Placed)
		}
		theirs.Ranks[0].Losses = 99
		if s.Ranks[0].Losses == 99 {
			t.Errorf("%s: the state shares the standing's ranks", c.name)
		}
	}
	own, theirs := guardedPair(t)
	own.Command.Lost, own.WantStop = true, true
	s, _ := take(t, own, jobs.CommandGranted{Epoch: 3, Theirs: &theirs, Leases: leasesOf(own)})
	if s.Outcome.Result != jobs.ResultStopped || s.Phase < jobs.Stopping {
		t.Errorf("a stop is forgotten: %s, %+v", s.Phase, s.Outcome)
	}
}

// TestGrantedEarly checks that a command without an earlier engagement changes nothing.
func TestGrantedEarly(t *testing.T) {
	t.Parallel()
	p := plain(1)
	p.Guarded = true
	engaging, _ := jobs.New(p, true, jobs.Now{Time: epoch})
	for name, s := range map[string]jobs.State{"a job that engages": engaging, "a job without guardians": running(t, plain(1))} {
		next, fx := take(t, s, jobs.CommandGranted{Epoch: 9})
		if len(fx) > 0 || next.Command != s.Command || next.Phase != s.Phase {
			t.Errorf("%s: %s, %+v, %v", name, next.Phase, next.Command, fx)
		}
	}
}

// TestGrantedLeases checks that leases which the last supervisor took unreported seat their ranks, and that a rank which
// is done stays done: nothing is computed twice.
func TestGrantedLeases(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		own, _ := guardedPair(t)
		if done {
			own.Ranks[1].State = jobs.RankDone
		}
		id := market.LeaseID{42}
		late := jobs.Lease{ID: id, Chain: id, Rank: 1, Epoch: own.Ranks[1].Epoch + 1, Open: true, Usable: true, Most: 7}
		beyond := late
		beyond.ID, beyond.Chain, beyond.Rank = market.LeaseID{43}, market.LeaseID{43}, 1<<32-1
		old := late
		old.ID, old.Chain, old.Epoch = market.LeaseID{44}, market.LeaseID{44}, 0
		leases := append(leasesOf(own), late, beyond, old)
		s, fx := take(t, own, jobs.CommandGranted{Epoch: 3, Leases: leases})
		r := s.Ranks[1]
		if r.Lease != id || r.Epoch != late.Epoch || (r.State == jobs.RankDone) != done {
			t.Errorf("done %v: rank 1 is %s with lease %s, epoch %d", done, r.State, r.Lease.Short(), r.Epoch)
		}
		ended := map[market.LeaseID]bool{}
		for _, e := range fx {
			if end, ok := e.(jobs.EndLease); ok {
				ended[end.Chain] = true
			}
		}
		if ended[id] || !ended[beyond.ID] || !ended[old.ID] || !ended[own.Ranks[1].Lease] || len(ended) != 3 {
			t.Errorf("done %v: %d chains are ended", done, len(ended))
		}
	}
}

// TestLostAtTheLimit checks that a rank that is lost when the job's time is over fails the job for its time.
func TestLostAtTheLimit(t *testing.T) {
	t.Parallel()
	s := running(t, plain(1))
	for after, want := range map[time.Duration]string{2*time.Minute - 1: "", 2 * time.Minute: "timeouts.run: 2m0s); rank 0: gone"} {
		ev := jobs.LeaseLost{Chain: s.Ranks[0].Lease, Cause: jobs.CauseDefaulted, Reason: "gone"}
		next, _, err := s.Step(jobs.Now{Time: epoch.Add(after), Slot: 1000}, ev)
		if err != nil || !strings.Contains(next.Outcome.Reason, want) || (next.Outcome.Code == jobs.CodeTimeout) != (want != "") {
			t.Errorf("after %v: %+v, %v, want %q", after, next.Outcome, err, want)
		}
	}
}
