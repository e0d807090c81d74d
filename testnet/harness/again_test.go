package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// with are the usual programs and one more.
func with(name string, p guest.Program) map[string]guest.Program {
	all := maps.Clone(programs)
	all[name] = p
	return all
}

// A program that ends as restart.policy does not want is started again on its lease, after a growing pause, and not more
// often than restart.max says. Its provider keeps the lease.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy job.RestartPolicy
		max    int
		fails  int32 // runs that end with 3
		state  buyer.State
		code   buyer.Code
		runs   int32
		least  time.Duration // of pauses
	}{
		{"never", job.RestartNever, 3, 9, buyer.Failed, buyer.CodeProgram, 1, 0},
		{"on failure", job.RestartOnFailure, 3, 2, buyer.Succeeded, "", 3, 3 * time.Second},
		{"on failure, well", job.RestartOnFailure, 3, 0, buyer.Succeeded, "", 1, 0},
		{"on failure, too often", job.RestartOnFailure, 2, 9, buyer.Failed, buyer.CodeProgram, 3, 3 * time.Second},
		{"always", job.RestartAlways, 2, 0, buyer.Succeeded, "", 3, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				flaky := func(p guest.Process) int {
					n := runs.Add(1)
					fmt.Fprintln(p.Stdout(), "run", n)
					if n <= c.fails {
						return 3
					}
					return 0
				}
				n := New(t, Options{Providers: 2, Programs: with("flaky", flaky), Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("flaky", 1)
				spec.Restart = job.Restart{Max: c.max, Policy: c.policy}
				if c.policy != job.RestartNever {
					spec.Restart.Backoff = job.Span(time.Second)
				}
				began := time.Now()
				j := b.Wait(b.Submit(spec).ID, 5*time.Minute)
				accounts := n.check(t, b, j, c.state)
				r := j.Ranks[0]
				if j.Code != c.code || runs.Load() != c.runs || r.Retries != int(c.runs)-1 || r.Restarts != 0 || len(accounts) != 1 {
					t.Errorf("%s after %d runs, %d of them again, on %d leases: %s", j.Code, runs.Load(), r.Retries, len(accounts), j.Reason)
				}
				if took := time.Since(began); took < c.least {
					t.Errorf("it took %v, the pauses alone are %v", took, c.least)
				}
				log := b.log(t, j.ID, 0)
				if got := strings.Count(log, "run "); got != int(c.runs) {
					t.Errorf("the log has %d of %d runs: %q", got, c.runs, log)
				}
				if n := len(b.steps(t, j.ID, record.StepRestarted)); n != int(c.runs)-1 {
					t.Errorf("the trace has %d restarts", n)
				}
			})
		})
	}
}

// A buyer that restarts in the pause before a program is started again goes on with the pause, on the same lease.
func TestRestartPolicySurvivesTheBuyer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		n := New(t, Options{Providers: 2, Programs: with("once", func(guest.Process) int { return map[bool]int{true: 1}[runs.Add(1) == 1] }), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("once", 1)
		spec.Restart = job.Restart{Max: 1, Policy: job.RestartOnFailure, Backoff: job.Span(4 * time.Second)}
		id := b.Submit(spec).ID
		time.Sleep(2 * time.Second)
		b.Kill()
		b.Restart()
		j := b.Wait(id, time.Minute)
		accounts := n.check(t, b, j, buyer.Succeeded)
		if runs.Load() != 2 || j.Ranks[0].Retries != 1 || len(accounts) != 1 {
			t.Errorf("%d runs, %d again, %d leases", runs.Load(), j.Ranks[0].Retries, len(accounts))
		}
	})
}

// said is a watch that says so each time it is asked, the last for ever.
func said(states ...*nodepb.Execution) (watch func(ctx context.Context, send func(*nodepb.WatchItem) error) error, next func()) {
	var mu sync.Mutex
	wake := make(chan struct{})
	at := 0
	next = func() {
		mu.Lock()
		defer mu.Unlock()
		at = min(at+1, len(states)-1)
		close(wake)
		wake = make(chan struct{})
	}
	return func(ctx context.Context, send func(*nodepb.WatchItem) error) error {
		for {
			mu.Lock()
			ex, more := states[at], wake
			mu.Unlock()
			if err := send(&nodepb.WatchItem{Item: &nodepb.WatchItem_Execution{Execution: ex}}); err != nil || ex.State.Ended() {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-more:
			}
		}
	}, next
}

// A program whose provider finds it unhealthy is stopped and started again where restart.policy says so.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Units: 1, Strangers: 1, Programs: programs, Log: Logger()})
		r := &rogue{adversary: n.adversary(t, 0)}
		sick := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_RUNNING, Health: nodepb.Health_HEALTH_UNHEALTHY, HealthMessage: "it coughs"}
		killed := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED, ExitCode: runtime.CodeKilled, Reason: string(runtime.ReasonKilled)}
		well := &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED}
		var next func()
		r.watch, next = said(sick, killed, well)
		var mu sync.Mutex
		var seqs []uint64
		stops := 0
		r.exec = func(_ context.Context, req *nodepb.ExecRequest) (*nodepb.Execution, error) {
			mu.Lock()
			defer mu.Unlock()
			switch req.Op.(type) {
			case *nodepb.ExecRequest_Start_:
				if seqs = append(seqs, req.Seq); len(seqs) == 2 {
					next()
				}
			case *nodepb.ExecRequest_Stop_:
				stops++
				next()
			}
			return &nodepb.Execution{Lease: req.Lease, Seq: req.Seq, State: nodepb.ExecState_EXEC_STATE_RUNNING}, nil
		}
		defer r.sell()()
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("hello", 1)
		spec.Restart = job.Restart{Max: 1, Policy: job.RestartOnFailure}
		j := b.Wait(b.Submit(spec).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		mu.Lock()
		defer mu.Unlock()
		if stops != 1 || len(seqs) != 2 || seqs[1] != seqs[0]+1 || j.Ranks[0].Retries != 1 || j.Ranks[0].Restarts != 0 {
			t.Errorf("%d stops, executions %v, %+v\n%s", stops, seqs, j.Ranks[0], b.Why(j.ID))
		}
		if why := b.Why(j.ID); !strings.Contains(why, "unhealthy: it coughs") {
			t.Errorf("the trace does not say why:\n%s", why)
		}
	})
}

// A provider that takes longer over a phase than the job says loses the rank; the job fails with the phase when there is
// nobody else to go to.
func TestPhaseTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, words string
		state       *nodepb.Execution
		limits      job.Timeouts
	}{
		{"pull", "timeouts.pull of 1s", &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_PULLING}, job.Timeouts{Pull: time.Second}},
		{"start, pulling", "timeouts.start of 1s", &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_PULLING}, job.Timeouts{Start: time.Second}},
		{"start, not healthy", "timeouts.start of 1s", &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_RUNNING, Health: nodepb.Health_HEALTH_STARTING},
			job.Timeouts{Pull: time.Second, Start: time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 1, Units: 1, Strangers: 1, Programs: programs, Log: Logger()})
				r := &rogue{adversary: n.adversary(t, 0)}
				r.watch, _ = said(c.state)
				defer r.sell()()
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("hello", 1)
				spec.Restart.Max = 0
				spec.Timeouts.Pull, spec.Timeouts.Start = c.limits.Pull, c.limits.Start
				j := b.Wait(b.Submit(spec).ID, time.Minute)
				n.wants(t, b, j, buyer.Failed, buyer.CodeTimeout, c.words)
				spec.Restart.Max = 1 // the honest provider gets it
				n.check(t, b, b.Wait(b.Submit(spec).ID, time.Minute), buyer.Succeeded)
			})
		})
	}
}

// A job that waits for units which do not come ends when its queue time is over, and says what would have fitted.
func TestQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 1, "60")
		spec.Timeouts.Queue = 5 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(5 * time.Second)
		n.Provider(0).Kill()
		n.wants(t, b, b.Wait(id, 2*time.Minute), buyer.Failed, buyer.CodeTimeout, "timeouts.queue of 5s", "no match for 1 × 1 units of cpu")
	})
}

// A job that is run again is the same one with another id, and with what was changed.
func TestRerun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 10)
		n := New(t, Options{Providers: 3, Programs: with("tell", func(p guest.Process) int { got <- env(p, "TOKEN"); return 0 }), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("tell", 1)
		spec.Secrets = []job.Secret{{Name: "t", Env: "TOKEN", From: "env:TOKEN"}}
		first, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Values: job.Values{Secrets: map[string][]byte{"t": []byte("hush")}}})
		if err != nil {
			t.Fatal(err)
		}
		n.check(t, b, b.Wait(first.ID, time.Minute), buyer.Succeeded)
		count, price := uint32(2), market.Price(500_000)
		again, err := b.Node.Buyer().Rerun(t.Context(), first.ID, job.Changes{Count: &count, MaxPrice: &price}, "once", "")
		if err != nil {
			t.Fatal(err)
		}
		twice, err := b.Node.Buyer().Rerun(t.Context(), first.ID, job.Changes{Count: &count, MaxPrice: &price}, "once", "")
		if err != nil || twice.ID != again.ID {
			t.Errorf("asked for once more it is %s, not %s: %v", twice.ID, again.ID, err)
		}
		j := b.Wait(again.ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if j.ID == first.ID || j.Rerun != first.ID || len(j.Ranks) != 2 || j.Spec.Payment.MaxPrice != price {
			t.Errorf("%+v", j)
		}
		for range 3 {
			if s := <-got; s != "hush" {
				t.Errorf("the program found %q", s)
			}
		}
		if _, err := b.Node.Buyer().Rerun(t.Context(), "jnone", job.Changes{}, "", ""); !errors.Is(err, buyer.ErrNoJob) {
			t.Error(err)
		}
		huge := uint32(1 << 31)
		if _, err := b.Node.Buyer().Rerun(t.Context(), first.ID, job.Changes{Count: &huge}, "", ""); !errors.Is(err, buyer.ErrRefused) {
			t.Error(err)
		}
		pages(t, b)
	})
}

// pages lists the two jobs one by one.
func pages(t *testing.T, b *Peer) {
	t.Helper()
	var ids []string
	q := buyer.Query{Limit: 1}
	for {
		p, err := b.Node.Buyer().List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Jobs {
			ids = append(ids, j.ID)
		}
		if q.After = p.Next; q.After == "" {
			break
		}
	}
	all := b.Node.Buyer().Jobs()
	if len(ids) != len(all) || ids[0] != all[0].ID || all[0].Created.Before(all[1].Created) {
		t.Errorf("pages have %v", ids)
	}
	key := "ci"
	for _, q := range []buyer.Query{{State: "failed"}, {Name: "x"}, {Since: time.Now()}, {Key: &key}, {State: "open"}} {
		if p, err := b.Node.Buyer().List(t.Context(), q); err != nil || len(p.Jobs) > 0 {
			t.Errorf("%+v: %d jobs, %v", q, len(p.Jobs), err)
		}
	}
	for _, q := range []buyer.Query{{State: "x"}, {Limit: -1}, {Limit: 1 << 20}, {After: "x"}} {
		if _, err := b.Node.Buyer().List(t.Context(), q); !errors.Is(err, buyer.ErrQuery) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// What jobs can cost is bounded by key and day, also when they are submitted at once and when the peer restarts in between;
// the next day begins anew.
func TestSpendingLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Units: 4, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		const each = 1_000_000
		_, token, err := b.Node.Buyer().AddKey(t.Context(), "ci", buyer.Limits{PerJob: each, PerDay: 3 * each})
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := b.Node.Buyer().KeyOf(token); !ok || name != "ci" {
			t.Errorf("the token is of %q", name)
		}
		if _, ok := b.Node.Buyer().KeyOf(token + "x"); ok {
			t.Error("another token is taken")
		}
		b.Kill()
		b.Restart()
		time.Sleep(3 * time.Second)
		spec := b.Job("work", 1, "2")
		spec.Payment.Budget, spec.Timeouts.Run, spec.Payment.MaxPrice = each, 10*time.Hour, 1_000_000
		for _, key := range []string{"ci", "other"} { // a key's jobs have the files that it uploaded
			if _, _, err := b.Node.Files().PutBlob(t.Context(), key, bytes.NewReader(runtimetest.FakeModule("work"))); err != nil {
				t.Fatal(err)
			}
		}
		submit := func(spec job.Job, key string) error {
			_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Key: key})
			return err
		}
		var wg sync.WaitGroup
		var taken, refused atomic.Int32
		for range 8 {
			wg.Go(func() {
				switch err := submit(spec, "ci"); {
				case err == nil:
					taken.Add(1)
				case errors.Is(err, buyer.ErrLimit) && strings.Contains(err.Error(), "0.00 STAR are left until 00:00 UTC"):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if taken.Load() != 3 || refused.Load() != 5 {
			t.Fatalf("%d taken, %d refused", taken.Load(), refused.Load())
		}
		b.Kill()
		b.Restart()
		time.Sleep(3 * time.Second)
		if err := submit(spec, "ci"); !errors.Is(err, buyer.ErrLimit) {
			t.Errorf("after a restart: %v", err)
		}
		large := spec
		large.Payment.Budget = each + 1
		if err := submit(large, "ci"); !errors.Is(err, buyer.ErrLimit) || !strings.Contains(err.Error(), "per job") {
			t.Errorf("a job that is too dear: %v", err)
		}
		if err := submit(spec, ""); err != nil {
			t.Errorf("the peer's own user: %v", err)
		}
		if err := submit(spec, "other"); !errors.Is(err, buyer.ErrKey) {
			t.Errorf("a key that is not there: %v", err)
		}
		for _, j := range b.Node.Buyer().Jobs() {
			b.Wait(j.ID, time.Minute)
		}
		if err := submit(spec, "ci"); err != nil { // they cost far less than they could have
			t.Errorf("after the jobs have ended: %v", err)
		}
		s := b.Node.Buyer().Spending(7, "ci", false)
		if len(s.Days) != 1 || s.Days[0].Jobs != 4 || s.Days[0].Spent == 0 || s.Days[0].Open != each || len(s.Keys) != 1 {
			t.Errorf("%+v", s)
		}
		if err := b.Node.Buyer().RemoveKey(t.Context(), "ci"); err != nil {
			t.Error(err)
		}
		if _, ok := b.Node.Buyer().KeyOf(token); ok {
			t.Error("a removed key is taken")
		}
	})
}

// One provider gets no more on a day than the peer's configuration says.
func TestProviderLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 8, Programs: programs, Log: Logger(), Limits: map[int]string{2: "0.07"}})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 1, "20")
		spec.Timeouts.Run = 10 * time.Minute // 0.06 at 0.36 an hour
		var ids []string
		for range 2 {
			ids = append(ids, b.Submit(spec).ID)
		}
		time.Sleep(5 * time.Second)
		third := b.Wait(b.Submit(spec).ID, time.Minute)
		n.wants(t, b, third, buyer.Failed, buyer.CodeNoMatch, "perProviderPerDay")
		seen := map[string]bool{}
		for _, id := range ids {
			j := b.Wait(id, time.Minute)
			n.check(t, b, j, buyer.Succeeded)
			seen[j.Ranks[0].Provider.String()] = true
		}
		if len(seen) != 2 {
			t.Errorf("two jobs went to %d providers", len(seen))
		}
	})
}

// A blocked provider is not asked, its quotes are ignored, and the trace says why.
func TestBlockedProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Price: map[int]string{0: "0.1"}, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		cheap := n.Provider(0).Key.Key()
		j := b.Wait(b.Submit(b.Job("hello", 1)).ID, time.Minute)
		if n.check(t, b, j, buyer.Succeeded); j.Ranks[0].Provider != cheap {
			t.Fatalf("the cheaper provider did not get it")
		}
		if err := b.Node.Blocks().Add(t.Context(), block.Entry{Peer: cheap, Roles: []block.Role{block.Provider}, Reason: "snores"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			j = b.Wait(b.Submit(b.Job("hello", 1)).ID, time.Minute)
			if n.check(t, b, j, buyer.Succeeded); j.Ranks[0].Provider == cheap {
				t.Error("a blocked provider got it")
			}
			if why := b.Why(j.ID); !strings.Contains(why, "blocked by you: snores") || strings.Contains(why, "asked "+cheap.String()[:8]) || strings.Contains(why, "quoted "+cheap.String()[:8]) {
				t.Errorf("the trace says\n%s", why)
			}
			b.Kill()
			b.Restart()
			time.Sleep(3 * time.Second)
		}
		q, err := b.Node.Buyer().Quote(t.Context(), buyer.Submission{Spec: b.Job("hello", 1)})
		if err != nil || !q.Places || len(q.Quotes) != 1 || q.Quotes[0].Ranks != 1 || q.Cost == 0 || q.Cost > q.MaxCost || len(q.Declined) != 1 {
			t.Errorf("%+v, %v", q, err)
		}
		q, err = b.Node.Buyer().Quote(t.Context(), buyer.Submission{Spec: b.Job("hello", 2)})
		if err != nil || q.Places || !strings.Contains(q.Reason, "blocked by you") {
			t.Errorf("%+v, %v", q, err)
		}
		if n := n.Provider(1).Node.Provider().Sold(); len(n) != 2 {
			t.Errorf("quotes have reserved something: %d sold", len(n))
		}
	})
}

// A stopped program has the time that the job gives it, and what it says and leaves until then is kept.
func TestStopGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		grace time.Duration
		saved bool
	}{{"enough", 30 * time.Second, true}, {"too little", 5 * time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				save := func(p guest.Process) int {
					for !guest.Exists(p, guest.StopFile) {
						p.Burn()
					}
					for range 12_000 { // 12 s to write it down
						p.Burn()
					}
					fmt.Fprintln(p.Stdout(), "saved")
					if guest.WriteFile(p, "/out/model", []byte("half")) != nil {
						return 1
					}
					return 0
				}
				n := New(t, Options{Providers: 1, Programs: with("save", save), Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("save", 1)
				spec.Outputs = []job.Output{{Path: "/out"}}
				spec.Timeouts.Stop = c.grace
				id := b.Submit(spec).ID
				time.Sleep(5 * time.Second)
				if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				j := b.Wait(id, 2*time.Minute)
				n.check(t, b, j, buyer.Stopped)
				if got := strings.Contains(b.log(t, id, 0), "saved"); got != c.saved {
					t.Errorf("the log says that it saved: %v", got)
				}
				if c.saved && (len(j.Ranks[0].Outputs) == 0 || b.file(t, j.Ranks[0].Outputs[0].Blob, "model") != "half") {
					t.Errorf("what it saved is not there: %+v", j.Ranks[0])
				}
			})
		})
	}
}
