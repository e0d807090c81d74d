package record

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/job"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

// Users see the phases of a job as its states: a program that is being stopped still runs.
func TestStateOf(t *testing.T) {
	t.Parallel()
	failed := jobs.Outcome{Result: jobs.ResultFailed, Code: jobs.CodeLost}
	for want, st := range map[State]jobs.State{
		"": {}, Queued: {Phase: jobs.Engaging}, Matching: {Phase: jobs.Placing, Gang: 1},
		Running:  {Phase: jobs.Stopping, Outcome: failed},
		Settling: {Phase: jobs.Settling, Outcome: failed}, Failed: {Phase: jobs.Ended, Outcome: failed},
	} {
		if got := StateOf(st); got != want {
			t.Errorf("phase %s is %q, want %q", st.Phase, got, want)
		}
	}
}

// A job that lacks money says how much it has, and what to change.
func TestReasonOf(t *testing.T) {
	t.Parallel()
	st := jobs.State{Params: jobs.Params{Budget: 2_000_000}, Outcome: jobs.Outcome{
		Result: jobs.ResultFailed, Code: jobs.CodePayment, Reason: "rank 0 used up its lease",
	}}
	got := reasonOf(genesis, job.Payment{MaxPrice: 500_000}, st)
	for _, want := range []string{"rank 0 used up its lease; ", "payment.budget, which is 2.00 ", "payment.maxPrice, which is 0.50 "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if st.Outcome.Code = jobs.CodeLost; reasonOf(genesis, job.Payment{}, st) != st.Outcome.Reason {
		t.Errorf("%q", reasonOf(genesis, job.Payment{}, st))
	}
}

// at is when the jobs of these tests were submitted.
var at = time.Unix(1_800_000_000, 0).UTC()

// spec is a job of n ranks.
func spec(n uint32) job.Job {
	return job.Job{
		Name: "train", Runtime: job.RuntimeWasm, Module: "m.wasm", Count: n, Resources: job.Resources{Class: "cpu", Units: 2},
		Payment:  job.Payment{MaxPrice: 1000, Budget: 5000},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour}, Restart: job.Restart{Max: 3, Policy: job.RestartOnFailure},
	}
}

// begun is a job of n ranks, and its machine as it is working on it.
func begun(t testing.TB, n uint32) (Job, jobs.State) {
	t.Helper()
	j := Job{ID: "jtest", Spec: spec(n), Created: at, Ranks: make([]Rank, n)}
	p, err := j.Params(genesis, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	st, _ := jobs.New(p, true, jobs.Now{Time: at, Slot: 1})
	st.Phase, st.Started = jobs.Working, at.Add(time.Second)
	for i := range st.Ranks {
		st.Ranks[i] = jobs.Rank{
			State: jobs.RankRunning, Epoch: 1, Lease: market.LeaseID{byte(i + 1)}, Provider: sign.Key{byte(i + 1)}, Seq: 1,
		}
	}
	return j, st
}

// The record takes from the machine what users see of it, and keeps the values that the machine does not have.
func TestFollow(t *testing.T) {
	t.Parallel()
	j, st := begun(t, 3)
	j.Ranks[0].Units.Model, j.Ranks[2].Reason = "x1", "its first provider left"
	st.Ranks[1] = jobs.Rank{
		State: jobs.RankDone, Lease: market.LeaseID{2}, Seq: 4, Losses: 1, Restarts: 2,
		Exit: jobs.Exit{Code: 3, Reason: "exit", Detail: "segfault"}, Outputs: []jobs.File{{Path: "/out", CID: "c", Bytes: 7, Tree: true}},
	}
	st.Ranks[2] = jobs.Rank{State: jobs.RankLeased, Lease: market.LeaseID{3}, NotBefore: at.Add(time.Minute)}
	st.Params.Run, st.Params.Budget, st.Extended, st.Paused = 2*time.Hour, 6000, 1, true
	st.Round, st.Carry, st.Avoid = 2, jobs.File{CID: "carry", Bytes: 9}, []sign.Key{{8}}
	j.Follow(genesis, st, []string{"", "", ""})
	if j.State != Running || j.Started != st.Started || j.Round != 2 || !j.Paused || j.Extended != 1 || len(j.Lost) != 1 {
		t.Errorf("%+v", j)
	}
	if j.Spec.Timeouts.Run != 2*time.Hour || j.Spec.Payment.Budget != 6000 || j.Carry.CID != "carry" || j.Carry.Size != 9 {
		t.Errorf("spec %+v, carry %+v", j.Spec, j.Carry)
	}
	if r := j.Ranks[0]; r.State != RankRunning || r.Lease != (market.LeaseID{1}) || r.Seq != 1 || r.Units.Model != "x1" {
		t.Errorf("rank 0: %+v", r)
	}
	r := j.Ranks[1]
	if r.State != RankDone || r.Restarts != 1 || r.Retries != 2 || r.Exit != 3 || r.Reason != "exit" || r.Detail != "segfault" {
		t.Errorf("rank 1: %+v", r)
	}
	if len(r.Outputs) != 1 || r.Outputs[0] != (Output{"/out", Blob{CID: "c", Size: 7, Tree: true}}) {
		t.Errorf("outputs of rank 1: %+v", r.Outputs)
	}
	if r := j.Ranks[2]; r.State != RankLeased || r.After != at.Add(time.Minute) || r.Reason != "its first provider left" {
		t.Errorf("rank 2: %+v", r)
	}
	st.Ranks[2] = jobs.Rank{State: jobs.RankWaiting}
	j.Follow(genesis, st, []string{"", "", "it went silent"})
	if r := j.Ranks[2]; r.State != RankWaiting || r.Reason != "it went silent" || r.Lease != (market.LeaseID{3}) || !r.After.IsZero() {
		t.Errorf("rank 2, lost: %+v", r)
	}
}

// The end of a job's work is shown with its outcome, and its account as soon as it is counted.
func TestFollowEnd(t *testing.T) {
	t.Parallel()
	j, st := begun(t, 1)
	lost := []string{""}
	st.Phase, st.Outcome = jobs.Settling, jobs.Outcome{Result: jobs.ResultFailed, Code: jobs.CodeLost, Reason: "no provider"}
	st.WantStop = true
	j.Follow(genesis, st, lost)
	if j.State != Settling || j.Outcome != Failed || j.Code != CodeLost || j.Reason != "no provider" || !j.Stopping || j.Owed != 0 {
		t.Errorf("%+v", j)
	}
	st.Account = jobs.Account{Counted: true, Owed: 40, Receipts: 2, Released: true, Paid: 41}
	st.Phase, st.Ended, st.Outcome = jobs.Ended, at.Add(time.Hour), jobs.Outcome{Result: jobs.ResultSucceeded}
	j.Follow(genesis, st, lost)
	if j.State != Succeeded || j.Code != "" || j.Owed != 40 || j.Receipts != 2 || j.Paid != 41 || j.Ended != st.Ended {
		t.Errorf("%+v", j)
	}
}

// A cluster is shown with the plan in force: without the ranks that join, and without those that were scaled away.
func TestFollowCluster(t *testing.T) {
	t.Parallel()
	j, st := begun(t, 2)
	j.Spec.Cluster, j.Cluster = &job.Cluster{Engine: "ray"}, &Cluster{Size: 2, Begun: 2}
	st.Plan = jobs.Plan{Version: 5, Generation: 1, Ready: at, Epochs: []uint32{0, 0, 4}}
	st.Scale = &jobs.Scale{Target: 3, From: 2, Budget: 5000}
	st.Ranks = append(st.Ranks, jobs.Rank{State: jobs.RankWaiting, Joining: true})
	st.Params.Count = 3
	j.Follow(genesis, st, make([]string, 3))
	c := j.Cluster
	if c.Size != 2 || len(c.Members) != 2 || c.Version != 5 || c.Generation != 1 || c.Begun != 2 || c.Before != 5000 || c.Target != 0 {
		t.Errorf("growing: %+v", c)
	}
	if len(j.Ranks) != 3 || j.Ranks[2].State != RankJoining || j.Spec.Count != 3 {
		t.Errorf("growing: %d ranks of %d: %+v", len(j.Ranks), j.Spec.Count, j.Ranks)
	}
	st.Scale, st.Ranks, st.Params.Count = &jobs.Scale{Target: 1, From: 2}, st.Ranks[:1], 1
	j.Follow(genesis, st, make([]string, 1))
	if c.Size != 1 || len(c.Members) != 1 || c.Members[0] != (Seat{0, 1, market.LeaseID{1}}) || c.Target != 1 || c.Before != 0 {
		t.Errorf("shrinking: %+v", c)
	}
	if len(j.Ranks) != 1 {
		t.Errorf("shrinking: %d ranks", len(j.Ranks))
	}
}

// To follow a state twice is to follow it once.
func TestFollowTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		j, st := begun(t, 3)
		st.Phase = jobs.Phase(rapid.IntRange(int(jobs.Engaging), int(jobs.Ended)).Draw(rt, "phase"))
		st.Outcome.Result = jobs.Result(rapid.IntRange(0, int(jobs.ResultStopped)).Draw(rt, "result"))
		lost := make([]string, 3)
		for i := range st.Ranks {
			r := &st.Ranks[i]
			r.State = jobs.RankState(rapid.IntRange(int(jobs.RankWaiting), int(jobs.RankFailed)).Draw(rt, "state"))
			r.Seq = rapid.Uint64Range(0, 3).Draw(rt, "seq")
			if rapid.Bool().Draw(rt, "no lease") {
				r.Lease = market.LeaseID{}
			}
			lost[i] = rapid.SampledFrom([]string{"", "silent"}).Draw(rt, "lost")
		}
		j.Follow(genesis, st, lost)
		again := j.Clone()
		again.Follow(genesis, st, lost)
		if !reflect.DeepEqual(j, again) {
			rt.Errorf("once\n%+v\ntwice\n%+v", j, again)
		}
	})
}

// A machine gets the values of its job, and none that no machine takes.
func TestParams(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Spec: spec(4)}
	p, err := j.Params(genesis, 7*time.Second)
	if err != nil || p.Count != 4 || p.Restart.Max != 3 || !p.Restart.OnFailure || p.LostAfter != 7*time.Second || p.Budget != 5000 {
		t.Errorf("%+v, %v", p, err)
	}
	if p.Guarded || p.Checked || p.Cluster != nil || p.Reduce || p.Interval != genesis.IntervalSlots {
		t.Errorf("%+v", p)
	}
	other := j
	other.ID = "j2"
	if q, err := other.Params(genesis, 7*time.Second); err != nil || q.Seed == p.Seed {
		t.Errorf("two jobs have the same seed %d, %v", q.Seed, err)
	}
	other.Detached, other.Spec.Standbys = &Detached{}, 2
	if q, err := other.Params(genesis, time.Second); err != nil || !q.Guarded || q.Standbys != 2 {
		t.Errorf("with guardians: %+v, %v", q, err)
	}
	other = j
	other.Spec.Verify = job.VerifyReplicate
	if q, err := other.Params(genesis, time.Second); err != nil || !q.Checked {
		t.Errorf("checked: %+v, %v", q, err)
	}
	other.Replica = &Replica{Job: "j1"}
	if q, err := other.Params(genesis, time.Second); err != nil || q.Checked {
		t.Errorf("the results of a replica are checked: %+v, %v", q, err)
	}
	other = j
	other.Spec.Cluster = &job.Cluster{Engine: "mpi"}
	if q, err := other.Params(genesis, time.Second); err != nil || q.Cluster == nil || !q.Cluster.HeadEnds {
		t.Errorf("a cluster: %+v, %v", q.Cluster, err)
	}
	for name, change := range map[string]func(*Job){
		"no ranks": func(j *Job) { j.Spec.Count = 0 }, "no time": func(j *Job) { j.Spec.Timeouts.Run = 0 },
		"a price above all": func(j *Job) { j.Spec.Payment.MaxPrice, j.Spec.Resources.Units = 1<<63, 1<<31 },
	} {
		bad := j
		change(&bad)
		if _, err := bad.Params(genesis, time.Second); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// The run time of a job is that of its programs, and not that of its payment.
func TestRan(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		job  Job
		want time.Duration
	}{
		"not started":     {Job{}, 0},
		"running":         {Job{Started: at}, 9 * time.Second},
		"settling":        {Job{Started: at, Finished: at.Add(3 * time.Second)}, 3 * time.Second},
		"paid":            {Job{Started: at, Finished: at.Add(3 * time.Second), Ended: at.Add(8 * time.Second)}, 3 * time.Second},
		"an older record": {Job{Started: at, Ended: at.Add(8 * time.Second)}, 8 * time.Second},
		"other clocks":    {Job{Started: at, Finished: at.Add(-time.Second)}, 0},
	} {
		if got := c.job.Ran(at.Add(9 * time.Second)); got != c.want {
			t.Errorf("%s: ran for %v, want %v", name, got, c.want)
		}
	}
	st := jobs.State{Phase: jobs.Settling, Started: at, Finished: at.Add(time.Second), Outcome: jobs.Outcome{Result: jobs.ResultSucceeded}}
	var j Job
	j.Follow(market.Genesis{}, st, nil)
	if got := j.Ran(at.Add(time.Hour)); got != time.Second {
		t.Errorf("the job of a machine ran for %v, want 1s", got)
	}
}
