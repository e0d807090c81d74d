package jobs_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// TestNothingAfterTheEnd checks that no event makes a job that has ended buy, run, pay, or change its outcome. Only an
// answer, a refusal and the end of a lease that appears late are effects.
func TestNothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 60).Draw(t, "turns") {
			w.turn()
		}
		w.settleDown()
		ended := w.s
		for range rapid.IntRange(1, 30).Draw(t, "events after the end") {
			w.now.Time = w.now.Time.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "s")) * time.Second)
			ev := draw{t, w.s}.event()
			switch ev.(type) {
			case jobs.CommandGranted, jobs.CommandLost:
				continue // of a job that another peer may have changed
			}
			next, fx, err := w.s.Step(w.now, ev)
			if err != nil {
				continue
			}
			for _, e := range fx {
				switch e.(type) {
				case jobs.Answer, jobs.Note, jobs.EndLease, jobs.RefuseReplica, jobs.BuyReplica:
				default:
					t.Fatalf("%T%+v after the end: %T%+v", ev, ev, e, e)
				}
				if buy, ok := e.(jobs.BuyReplica); ok && !granted(ended, buy) {
					t.Fatalf("%T%+v after the end buys %+v", ev, ev, buy)
				}
			}
			if next.Phase != ended.Phase || next.Outcome != ended.Outcome || !next.Ended.Equal(ended.Ended) {
				t.Fatalf("%T%+v changed the end from %+v to %s %+v", ev, ev, ended.Outcome, next.Phase, next.Outcome)
			}
			if !next.Next().IsZero() {
				t.Fatalf("%T%+v: a job that has ended waits until %v", ev, ev, next.Next())
			}
			w.s = next
		}
	})
}

// granted reports whether the money of a replica was granted before the end: the answer is repeated then.
func granted(s jobs.State, buy jobs.BuyReplica) bool {
	for _, g := range s.Grants {
		if g.Rank == buy.Rank && g.Attempt == buy.Attempt && g.Most >= buy.Budget {
			return true
		}
	}
	return false
}

// TestRestartsAgree checks that a restart from the journal, at any time, and a second restart right after it leave the
// same record, and that the second one repeats the effects of the first.
func TestRestartsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 200).Draw(t, "turns") {
			w.turn()
		}
		restart := func(record []byte) ([]byte, []string) {
			s, err := jobs.Decode(record)
			if err != nil {
				t.Fatal(err)
			}
			next, fx, err := s.Step(w.now, jobs.Recovered{Leases: w.facts()})
			if err != nil {
				t.Fatal(err)
			}
			b, err := next.Encode()
			if err != nil {
				t.Fatal(err)
			}
			return b, kinds(fx)
		}
		once, first := restart(w.disk)
		twice, second := restart(once)
		if !bytes.Equal(once, twice) {
			t.Fatalf("one restart leaves\n%s\ntwo leave\n%s", once, twice)
		}
		for i := range second {
			if !strings.Contains(strings.Join(first, " "), second[i]) {
				t.Fatalf("the first restart has effects %v, the second %v", first, second)
			}
		}
	})
}

// kinds are the types of effects, without notes.
func kinds(fx []jobs.Effect) (out []string) {
	for _, e := range fx {
		switch e.(type) {
		case jobs.OrderGang:
			out = append(out, "order")
		case jobs.StartExecution:
			out = append(out, "start")
		case jobs.StopExecution:
			out = append(out, "stop")
		case jobs.EndLease:
			out = append(out, "end")
		case jobs.RenewLease:
			out = append(out, "renew")
		case jobs.CloseAccount:
			out = append(out, "close")
		case jobs.AnchorReceipts:
			out = append(out, "anchor")
		case jobs.GatherOutputs:
			out = append(out, "gather")
		case jobs.Reduce:
			out = append(out, "reduce")
		}
	}
	return out
}

// outcome delivers events to a job of which every rank runs, and returns the state after the last.
func outcome(t *testing.T, s jobs.State, events ...jobs.Event) jobs.State {
	t.Helper()
	for i, ev := range events {
		var err error
		if s, _, err = s.Step(jobs.Now{Time: epoch.Add(time.Duration(i) * time.Second), Slot: 1000}, ev); err != nil {
			t.Fatalf("%T%+v: %v", ev, ev, err)
		}
	}
	return s
}

// TestReasonsOfFailures checks the code and the reason of a job that fails: the user reads them, and programs act on the
// code.
func TestReasonsOfFailures(t *testing.T) {
	t.Parallel()
	once := plain(1)
	once.Restart = jobs.Restart{}
	for _, c := range []struct {
		name   string
		exit   jobs.Exit
		code   jobs.Code
		reason string
	}{
		{"a program", jobs.Exit{Code: 3}, jobs.CodeProgram, "rank 0 ended with exit code 3; `starling logs` shows its output"},
		{"a signal", jobs.Exit{Code: 137, Reason: "killed"}, jobs.CodeProgram, "rank 0 ended with exit code 137, killed; `starling logs`"},
		{"too little memory", jobs.Exit{Code: 137, Reason: "oom"}, jobs.CodeProgram, "resources.memory (--memory)"},
		{"too little disk", jobs.Exit{Code: 1, Reason: "disk"}, jobs.CodeProgram, "resources.disk (--disk)"},
		{
			"an image", jobs.Exit{Code: 125, Reason: "start", Detail: "no such image", Hopeless: true}, jobs.CodeInput,
			"rank 0: the image cannot be used: no such image",
		},
	} {
		s := running(t, once)
		x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: s.Ranks[0].Seq}
		s = outcome(t, s, jobs.ExecutionExited{Exec: x, Exit: c.exit}, jobs.OutputsGathered{Exec: x})
		o := s.Outcome
		if o.Result != jobs.ResultFailed || o.Code != c.code || !strings.Contains(o.Reason, c.reason) {
			t.Errorf("%s: got %+v, want code %v and %q", c.name, o, c.code, c.reason)
		}
	}
}

// TestPeerFailed checks a job whose own peer cannot go on: programs are stopped, outputs that nobody fetches any more are
// given up, and its money comes back as always.
func TestPeerFailed(t *testing.T) {
	t.Parallel()
	s := running(t, plain(2))
	exec := func(i int) jobs.Exec {
		return jobs.Exec{Rank: uint32(i), Lease: s.Ranks[i].Lease, Seq: s.Ranks[i].Seq}
	}
	now := jobs.Now{Time: epoch, Slot: 1000}
	s, _, err := s.Step(now, jobs.ExecutionExited{Exec: exec(1)})
	if err != nil || s.Ranks[1].Doing != jobs.Gathering {
		t.Fatalf("rank 1 is %s: %v", s.Ranks[1].Doing, err)
	}
	s, fx, err := s.Step(now, jobs.PeerFailed{Code: jobs.CodePeer, Reason: "disk full"})
	if err != nil || s.Phase != jobs.Stopping || s.Outcome != (jobs.Outcome{Result: jobs.ResultFailed, Code: jobs.CodePeer, Reason: "disk full"}) {
		t.Fatalf("%s, %+v: %v", s.Phase, s.Outcome, err)
	}
	if s.Ranks[1].State == jobs.RankRunning {
		t.Error("the outputs of rank 1 are awaited for ever")
	}
	stopped := 0
	for _, e := range fx {
		if stop, ok := e.(jobs.StopExecution); ok && stop.Exec == exec(0) {
			stopped++
		}
	}
	if stopped != 1 {
		t.Errorf("rank 0 is stopped %d times: %v", stopped, fx)
	}
	again, fx, err := s.Step(now, jobs.PeerFailed{Code: jobs.CodeInput, Reason: "again"})
	if err != nil || again.Outcome != s.Outcome || len(fx) != 0 {
		t.Errorf("a second failure: %+v, %v, %v", again.Outcome, fx, err)
	}
	s = outcome(t, s, jobs.ExecutionExited{Exec: exec(0), Exit: jobs.Exit{Code: 143, Broken: true}})
	if s = outcome(t, s, jobs.PeerFailed{Code: jobs.CodePeer}); s.Phase != jobs.Settling {
		t.Fatalf("nothing runs, and the job is %s", s.Phase)
	}
	for _, l := range s.Leases {
		s = outcome(t, s, jobs.LeaseCost{Lease: l.ID, Most: 7, Settled: true})
	}
	s = outcome(t, s, jobs.AccountCounted{Owed: 14}, jobs.EscrowReleased{Paid: 14})
	if s.Phase != jobs.Ended || s.Promised() != 14 || s.Outcome.Code != jobs.CodePeer {
		t.Errorf("%s, %d promised, %+v", s.Phase, s.Promised(), s.Outcome)
	}
}

// TestLateAnswersOfPayments checks that reports of the pay room count only while the job settles, and that a result is
// judged once.
func TestLateAnswersOfPayments(t *testing.T) {
	t.Parallel()
	p := plain(1)
	p.Checked = true
	s := running(t, p)
	early := outcome(t, s, jobs.AccountCounted{Owed: 5}, jobs.EscrowReleased{Paid: 5}, jobs.ReceiptsAnchored{Tx: "t"},
		jobs.ResultJudged{Rank: 0, Disputed: true, Reason: "early"})
	if early.Account != (jobs.Account{}) || early.Judged[0] || early.Outcome != (jobs.Outcome{}) {
		t.Errorf("before the job settles: %+v, judged %v, %+v", early.Account, early.Judged, early.Outcome)
	}
	x := jobs.Exec{Lease: s.Ranks[0].Lease, Seq: s.Ranks[0].Seq}
	s = outcome(t, s, jobs.ExecutionExited{Exec: x}, jobs.OutputsGathered{Exec: x, Outputs: []jobs.File{{Path: "/out", CID: "a"}}})
	if s.Phase != jobs.Settling {
		t.Fatalf("the job is %s", s.Phase)
	}
	bad := jobs.ResultJudged{Rank: 0, Outputs: []jobs.File{{CID: "../c"}}}
	if _, _, err := s.Step(jobs.Now{Time: epoch}, bad); !errors.Is(err, jobs.ErrEvent) {
		t.Errorf("outputs outside of the job's: %v, want %v", err, jobs.ErrEvent)
	}
	s = outcome(t, s, jobs.ResultJudged{Rank: 0, Outputs: []jobs.File{{Path: "/out", CID: "b"}}})
	s = outcome(t, s, jobs.ResultJudged{Rank: 0, Outputs: []jobs.File{{Path: "/out", CID: "c"}}, Disputed: true})
	if got := s.Ranks[0].Outputs; len(got) != 1 || got[0].CID != "b" || s.Outcome.Result != jobs.ResultSucceeded {
		t.Errorf("a second verdict counts: %v, %+v", got, s.Outcome)
	}
}

// TestUnpayableRenewals checks that extensions which the budget, the largest amount, or the longest time does not cover
// are refused, and change nothing.
func TestUnpayableRenewals(t *testing.T) {
	t.Parallel()
	p := plain(2)
	p.Budget = 3000
	s := running(t, p)
	now := jobs.Now{Time: epoch, Slot: 1000}
	before := s.Params
	for _, c := range []struct { // two ranks cost 20 a second
		by     time.Duration
		budget market.Amount
		want   error
	}{
		{24 * time.Hour, 0, jobs.ErrBudget}, {time.Minute, before.Budget - 1, jobs.ErrBudget}, {0, 0, jobs.ErrEvent},
		{-time.Hour, 0, jobs.ErrEvent}, {1<<63 - 1, 0, jobs.ErrEvent},
	} {
		next, fx, err := s.Step(now, jobs.ExtendRequested{Req: 9, By: c.by, Budget: c.budget})
		for _, e := range fx {
			if answer, ok := e.(jobs.Answer); ok {
				err = answer.Err
			} else if _, note := e.(jobs.Note); !note {
				t.Errorf("by %v, budget %d: %T%+v", c.by, c.budget, e, e)
			}
		}
		if !errors.Is(err, c.want) || next.Params != before || next.Extended != 0 {
			t.Errorf("by %v, budget %d: %v, want %v, params %+v", c.by, c.budget, err, c.want, next.Params)
		}
	}
}
