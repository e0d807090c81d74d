package checks

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/verify/replica"
)

// checked is a world after the check of a job whose provider gave the first of the answers.
func checked(t *testing.T, first answer, change func(*world, *fakeJob), replicas ...answer) (*world, *fakeJob) {
	w := newWorld(t, replicas...)
	f := w.add("job", spec(), nil, first)
	if change != nil {
		change(w, f)
	}
	w.checker.Check(t.Context(), f)
	return w, f
}

// A result is right if a majority of the providers that computed it gave it. The others are blamed, with a proof of what
// they signed.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    answer
		change   func(*world, *fakeJob)
		replicas []answer
		want     replica.State
		wrong    int // providers that are blamed
		outputs  bool
		disputed bool
		proofs   int
	}{
		"equal":    {answer{by: 1, file: "x"}, nil, []answer{{by: 2, file: "x"}}, replica.Equal, 0, false, false, 0},
		"forged":   {answer{by: 1, file: "forged"}, nil, []answer{{by: 2, file: "x"}, {by: 3, file: "x"}}, replica.Differs, 1, true, false, 1},
		"slander":  {answer{by: 1, file: "x"}, nil, []answer{{by: 2, file: "y"}, {by: 3, file: "x"}}, replica.Differs, 1, false, false, 1},
		"unsigned": {answer{by: 1, file: "y", unsigned: true}, nil, []answer{{by: 2, file: "x"}, {by: 3, file: "x"}}, replica.Differs, 1, true, false, 0},
		"chaos": {answer{by: 1, file: "a"}, nil, []answer{{by: 2, file: "b"}, {by: 3, file: "c"}, {by: 4, file: "d"}, {by: 5, file: "e"}},
			replica.Undecided, 0, false, true, 1},
		"nobody":  {answer{by: 1, file: "x"}, func(w *world, _ *fakeJob) { w.refused = "no money" }, nil, replica.Unverified, 0, false, false, 0},
		"failing": {answer{by: 1, file: "x"}, nil, []answer{{by: 2}, {by: 3, file: "x"}}, replica.Equal, 0, false, false, 0},
		"endless": {answer{by: 1, file: "x"}, nil, []answer{{by: 2, endless: true}}, replica.Unverified, 0, false, false, 0},
		"full":    {answer{by: 1, file: "x"}, func(w *world, _ *fakeJob) { w.full = 3 }, []answer{{by: 2, file: "x"}}, replica.Equal, 0, false, false, 0},
		"journal": {answer{by: 1, file: "x"}, func(_ *world, f *fakeJob) { f.breaks = 2 }, []answer{{by: 2, file: "x"}}, replica.Equal, 0, false, false, 0},
		"no chain": {answer{by: 1, file: "x"}, func(w *world, _ *fakeJob) { w.noBlocks = true }, nil,
			replica.Unverified, 0, false, false, 0},
		"its own": {answer{by: 1, file: "x"}, func(w *world, _ *fakeJob) { w.bonds[provider(1).Key()] = sign.Key{77} }, nil,
			replica.Unverified, 0, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, f := checked(t, c.first, c.change, c.replicas...)
				j := f.Snapshot()
				v := j.Verified[0]
				if v.State != c.want || !v.Ended() || len(f.judged) != 1 {
					t.Fatalf("%s, judged %d times: %+v", v.State, len(f.judged), v.Verdict)
				}
				if len(v.Verdict.Wrong) != c.wrong || len(w.proofs) != c.proofs {
					t.Errorf("blamed are %v, by %d proofs", v.Verdict.Wrong, len(w.proofs))
				}
				if (v.Evidence != "") != (c.proofs > 0) {
					t.Errorf("evidence %q", v.Evidence)
				}
				if d := f.judged[0]; (d.Outputs != nil) != c.outputs || (d.Disputed != "") != c.disputed {
					t.Errorf("outputs %v, disputed %q", d.Outputs, d.Disputed)
				}
				if c.outputs && j.Ranks[0].Outputs[0].CID != blob.Sum([]byte("x")).String() {
					t.Errorf("the job has %v", j.Ranks[0].Outputs)
				}
				last := f.steps[len(f.steps)-1]
				if last.Kind != trace.Verified || *last.Rank != 0 || last.Detail != v.Text() {
					t.Errorf("the trace ends with %+v", last)
				}
			})
		})
	}
}

// A check that is over is not made again, and a replica that was stopped in time is not waited for.
func TestCheckOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, f := checked(t, answer{by: 1, file: "x"}, nil, answer{by: 2, endless: true})
		if len(w.stopped) != 1 || !strings.HasPrefix(w.stopped[0], "replica/job/0/") {
			t.Errorf("stopped are %v", w.stopped)
		}
		steps := len(f.steps)
		if w.checker.Check(t.Context(), f); len(f.steps) != steps || len(f.judged) != 1 {
			t.Errorf("judged %d times", len(f.judged))
		}
	})
}

// After a crash the check goes on where the journal has it, with the replica that was bought.
func TestCheckResumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answer{by: 2, endless: true})
		f := w.add("job", spec(), nil, answer{by: 1, file: "x"})
		ctx, crash := context.WithTimeout(t.Context(), 10*time.Second)
		defer crash()
		w.checker.Check(ctx, f)
		v := f.Snapshot().Verified[0]
		if v.State != replica.Replicating || len(v.Replicas) != 1 || len(v.Machine) == 0 {
			t.Fatalf("%+v", v)
		}
		w.mu.Lock()
		delete(w.jobs, v.Replicas[0])
		w.mu.Unlock()
		w.add(v.Replicas[0], w.answered(f), &record.Replica{Job: "job", Count: 1, Attempt: 1}, answer{by: 2, file: "x"})
		if w.checker.Check(t.Context(), f); f.Snapshot().Verified[0].State != replica.Equal || w.bought != 1 {
			t.Errorf("%+v, bought %d", f.Snapshot().Verified[0], w.bought)
		}
	})
}

// answered is the spec of a replica of a job.
func (w *world) answered(f *fakeJob) (s job.Job) {
	s, err := record.ReplicaSpec(f.Snapshot(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// The trust in a provider counts its right results, and a wrong one ends it.
func TestCheckTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := checked(t, answer{by: 1, file: "x"}, nil, answer{by: 2, file: "x"})
		if got := w.checker.trust.Of(provider(1).Key()); got.Valid != 1 {
			t.Errorf("trust %+v", got)
		}
		w.answers = append(w.answers, answer{by: 2, file: "x"}, answer{by: 3, file: "x"})
		w.checker.Check(t.Context(), w.add("again", spec(), nil, answer{by: 1, file: "forged"}))
		if got := w.checker.trust.Of(provider(1).Key()); got.Valid != 0 {
			t.Errorf("trust %+v", got)
		}
	})
}

// A result that cannot be read is an error, and no verdict.
func TestResultErrors(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeJob){
		"no module":     func(f *fakeJob) { f.job.Spec.Blobs = nil },
		"no digest":     func(f *fakeJob) { f.job.Ranks[0].Outputs[0].CID = "x" },
		"no lease":      func(f *fakeJob) { f.job.Ranks[0].Lease = market.LeaseID{9} },
		"no seed":       func(f *fakeJob) { f.job.Spec.Verify = "" },
		"other payouts": func(f *fakeJob) { f.lease.Payout = sign.Key{9} },
	} {
		w := newWorld(t)
		f := w.add("job", spec(), nil, answer{by: 1, file: "x"})
		change(f)
		if r, err := w.checker.result(t.Context(), f, 0); err == nil {
			t.Errorf("%s: %+v", name, r.Committed)
		}
	}
	w := newWorld(t)
	f := w.add("job", spec(), nil, answer{by: 1, file: "x"})
	f.job.Ranks[0].Outputs = nil
	if r, err := w.checker.result(t.Context(), f, 0); err != nil || r.Signed || r.Output.IsZero() || r.Owner != (sign.Key{1}) {
		t.Errorf("a result that lacks an output: %+v, %v", r.Committed, err)
	}
}

// The draw takes each provider once, whatever it quotes, and leaves out the parties that are not asked.
func TestDraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var res match.Result
	for _, n := range []byte{1, 2, 3, 2, 4} {
		p := provider(n).Key()
		res.Ranked = append(res.Ranked, match.Scored{Candidate: match.Candidate{
			Offer: market.Offer{Provider: p, Payout: sign.Key{n}}, Quote: &market.Quote{Provider: p, Payout: sign.Key{n}},
		}})
	}
	w.bonds[provider(4).Key()] = sign.Key{1} // the wallet of provider 1
	not := []replica.Party{{Provider: provider(1).Key(), Owner: sign.Key{1}}}
	orders := map[sign.Key]bool{}
	for seed := range byte(20) {
		got := w.checker.Draw(t.Context(), record.Replica{Seed: sign.Hash{seed}, Attempt: 1, Not: not}, res)
		if len(got.Ranked) != 2 || got.Newcomers != nil {
			t.Fatalf("%d providers are drawn", len(got.Ranked))
		}
		first, second := got.Ranked[0].Candidate.Offer.Provider, got.Ranked[1].Candidate.Offer.Provider
		if orders[first] = true; first == second || first == provider(1).Key() || second == provider(4).Key() {
			t.Errorf("drawn are %s and %s", first.Short(), second.Short())
		}
	}
	if len(orders) != 2 {
		t.Errorf("%d of 2 providers are ever the first", len(orders))
	}
}
