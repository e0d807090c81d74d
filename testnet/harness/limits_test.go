package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// wants checks the outcome of a job that did not succeed: its code, and that its
// reason has all of the words.
func (n *Net) wants(t *testing.T, b *Peer, j buyer.Job, state buyer.State, code buyer.Code, words ...string) []buyer.LeaseAccount {
	t.Helper()
	accounts := n.check(t, b, j, state)
	n.checkPayer(t, b)
	if j.Code != code {
		t.Errorf("code %q, want %q (%s)", j.Code, code, j.Reason)
	}
	for _, w := range words {
		if !strings.Contains(j.Reason, w) {
			t.Errorf("the reason %q does not say %q", j.Reason, w)
		}
	}
	return accounts
}

// A job that nobody can take fails at once, and says why.
func TestUnschedulable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*job.Job)
		words  []string
	}{
		{"price", func(j *job.Job) { j.Payment.MaxPrice = 100_000 }, []string{"over the ceiling 0.10", "nearest is 0.36"}},
		{"ranks", func(j *job.Job) { j.Count = 7 }, []string{"7 × 1 units", "6"}},
		{"spread", func(j *job.Job) { j.Count, j.Placement.Pack = 4, false }, []string{"4 × 1 units", "3"}},
		{"region", func(j *job.Job) { j.Placement.Regions = []market.Region{"mars"} }, []string{"region", "mars", "local"}},
		{"units", func(j *job.Job) { j.Resources.Units = 3 }, []string{"3 units", "2"}},
		{"memory", func(j *job.Job) { j.Resources.PerUnit.MemoryMiB = 1 << 20 }, []string{"memory"}},
		{"runtime limit", func(j *job.Job) { j.Timeouts.Run, j.Payment.Budget = 48*time.Hour, 900_000_000 }, []string{"duration", "24h0m0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Programs: programs, Log: Logger()})
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("hello", 2)
				spec.Placement.Pack = true
				c.change(&spec)
				began := time.Now()
				j := b.Wait(b.Submit(spec).ID, time.Minute)
				n.wants(t, b, j, buyer.Failed, buyer.CodeNoMatch, append(c.words, "no match")...)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v to find out", took)
				}
				t.Log(j.Reason)
			})
		})
	}
}

// A GPU is for containers: a WASI program that asks for one is refused before anything is ordered. A class that nobody sells
// is asked for and not found.
func TestUnknownClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs})
		b := n.Buyer(0)
		time.Sleep(time.Second)
		spec := b.Job("hello", 1)
		spec.Resources.Class = "gpu/none"
		if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec}); !errors.Is(err, buyer.ErrRefused) || !strings.Contains(fmt.Sprint(err), "only a container can use a GPU") {
			t.Errorf("refused with %v", err)
		}
		spec.Resources.Class = "tape"
		n.wants(t, b, b.Wait(b.Submit(spec).ID, time.Minute), buyer.Failed, buyer.CodeNoMatch, "units of tape")
	})
}

// A webhook that the peer would never call is refused when the job is submitted, not dropped later.
func TestPrivateWebhook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs})
		b := n.Buyer(0)
		time.Sleep(time.Second)
		spec := b.Job("hello", 1)
		spec.Webhooks = []job.Webhook{{URL: "https://hooks.example/a"}, {URL: "http://127.0.0.1:9/b"}}
		_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec})
		if !errors.Is(err, buyer.ErrRefused) || !strings.Contains(fmt.Sprint(err), "spec.webhooks[1].url: 127.0.0.1:9: not a public address") {
			t.Errorf("refused with %v", err)
		}
	})
}

// What a job may do is bounded; each bound ends it with its own code and a reason,
// and what it used is paid.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*job.Job)
		state  buyer.State
		code   buyer.Code
		most   time.Duration
		words  []string
	}{
		// 2 ranks, 0.36 tokens per hour: 100 base units a second each.
		{"budget", func(j *job.Job) { j.Payment.Budget = 2 * 278 * 10 }, buyer.Failed, buyer.CodePayment, 90 * time.Second, []string{"used up its lease", "payment.budget", "payment.maxPrice"}},
		{"tiny budget", func(j *job.Job) { j.Payment.Budget = 10 }, buyer.Failed, buyer.CodePayment, 10 * time.Second, []string{"0.00001 STAR", "2 leases", "payment.budget"}},
		{"run time", func(j *job.Job) { j.Timeouts.Run = 5 * time.Second }, buyer.Failed, buyer.CodeTimeout, 30 * time.Second, []string{"timeouts.run", "5s"}},
		{"exit code", func(j *job.Job) { j.Module = "fail.wasm" }, buyer.Failed, buyer.CodeProgram, 30 * time.Second, []string{"exit code 7", "starling logs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("work", 2, "60")
				c.change(&spec)
				spec.Blobs = map[string]job.Blob{spec.Module: b.Put("starling fake program " + strings.TrimSuffix(spec.Module, ".wasm") + "\n")}
				began := time.Now()
				j := b.Wait(b.Submit(spec).ID, 5*time.Minute)
				n.wants(t, b, j, c.state, c.code, c.words...)
				if took := time.Since(began); took > c.most {
					t.Errorf("it took %v, at most %v are right", took, c.most)
				}
				if j.Owed > spec.Payment.Budget {
					t.Errorf("the job cost %d, its budget was %d", j.Owed, spec.Payment.Budget)
				}
				t.Logf("after %v: %s", time.Since(began), j.Reason)
				n.Settle()
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
			})
		})
	}
}

// A job can be stopped at any time: at once, while its leases are being taken, while
// it runs. Nothing is left of it on any provider, and what it used is paid.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 12 * time.Millisecond, 20 * time.Millisecond, 23 * time.Millisecond,
		25 * time.Millisecond, 27 * time.Millisecond, 29 * time.Millisecond, 31 * time.Millisecond, 35 * time.Millisecond, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				id := b.Submit(b.Job("work", 3, "60")).ID
				time.Sleep(after)
				if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				j := b.Wait(id, time.Minute)
				n.wants(t, b, j, buyer.Stopped, "", "stopped by its user")
				if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
					t.Errorf("stopping it again: %v", err)
				}
				// Not later than holds expire.
				time.Sleep(15 * time.Second)
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
			})
		})
	}
}

// A rank that is lost more often than restart.max says ends the job.
func TestRestartMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Units: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 1, "60")
		spec.Restart.Max = 1
		id := b.Submit(spec).ID
		for range 2 {
			time.Sleep(12 * time.Second)
			j, err := b.Node.Buyer().Job(id)
			if err != nil || j.State != buyer.Running {
				t.Fatalf("%s %v", j.Summary(), err)
			}
			n.owner(t, j.Ranks[0].Provider).Kill()
		}
		j := b.Wait(id, time.Minute)
		n.wants(t, b, j, buyer.Failed, buyer.CodeLost, "losses: got 2, want at most 1 (restart.max)")
	})
}

// A wallet that cannot pay: the job is refused at once, and nothing of it is kept.
func TestNoFunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("hello", 1)
		spec.Payment.MaxPrice, spec.Payment.Budget = 1<<40, 2*funds
		_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: spec, Once: "key"})
		if !errors.Is(err, buyer.ErrRefused) || !strings.Contains(fmt.Sprint(err), "up to 2000.00 STAR") || !strings.Contains(fmt.Sprint(err), "holds 1000.00 STAR") {
			t.Errorf("refused with %v", err)
		}
		if len(b.Node.Buyer().Jobs()) != 0 {
			t.Error("the refused job is kept")
		}
	})
}

// A chain that is down delays payment and nothing else: a job is taken, run and
// metered, and it is paid when the chain is back.
func TestChainDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		from, to time.Duration // after the job was handed in
	}{
		{"at submit", 0, 3 * time.Second},
		{"in mid-job", 3 * time.Second, 6 * time.Second},
		{"at settlement", 5 * time.Second, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				n.Chain.SetDown(c.from == 0)
				id := b.Submit(b.Job("work", 2, "8")).ID
				time.Sleep(c.from)
				n.Chain.SetDown(true)
				time.Sleep(c.to - c.from)
				if j, err := b.Node.Buyer().Job(id); err != nil || j.State.Ended() || c.to > 30*time.Second && j.State != buyer.Settling {
					t.Errorf("while the chain is down: %s %v\n%s", j.Summary(), err, b.Why(id))
				}
				n.Chain.SetDown(false)
				j := b.Wait(id, 2*time.Minute)
				accounts := n.check(t, b, j, buyer.Succeeded)
				n.checkPayer(t, b)
				if len(accounts) != 2 {
					t.Errorf("%d leases for 2 ranks", len(accounts))
				}
			})
		})
	}
}

// Nothing runs before its money is in escrow: while the chain stays down a job waits as long as its queue allows, then fails with the
// reason, and nothing is paid.
func TestChainStaysDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 2, Programs: all, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		n.Chain.SetDown(true)
		spec := b.Job("count", 2, "8")
		spec.Timeouts.Queue = 30 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(2 * time.Minute)
		j := n.job(t, b, id)
		if !strings.Contains(j.Reason, chain.ErrDown.Error()) || runs.Load() != 0 {
			t.Errorf("%s: %q, %d programs ran\n%s", j.Summary(), j.Reason, runs.Load(), b.Why(id))
		}
		n.Chain.SetDown(false)
		n.check(t, b, b.Wait(id, 2*time.Minute), buyer.Failed)
		n.Settle()
		n.checkPayer(t, b)
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

// Jobs that only wait for their money to come back leave room for others.
func TestSettlingJobsDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		n.Programs.Lose(func(calls []svm.Instruction) bool { // nothing comes back, so no job ends
			return slices.ContainsFunc(calls, func(in svm.Instruction) bool { return program.CallName(n.Genesis.Program, in) == "Refund" })
		})
		var ids []string
		for range config.Default().Buy.MaxJobs + 2 {
			id := b.Submit(b.Job("hello", 1)).ID
			for j := n.job(t, b, id); j.State != buyer.Settling; j = n.job(t, b, id) { // its work is over, its money is not
				if time.Sleep(100 * time.Millisecond); j.State.Ended() {
					t.Fatalf("%s\n%s", j.Summary(), b.Why(id))
				}
			}
			ids = append(ids, id)
		}
		n.Programs.Lose(nil)
		for _, id := range ids {
			if j := b.Wait(id, 5*time.Minute); j.State != buyer.Succeeded || j.Paid != j.Owed {
				t.Errorf("%s: owed %d, paid %d", j.Summary(), j.Owed, j.Paid)
			}
		}
		n.checkPayer(t, b)
	})
}

// Before a peer has seen the chain it takes no job, and says why.
func TestChainNeverSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, ChainDown: true})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		_, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: b.Job("hello", 1)})
		if !errors.Is(err, buyer.ErrRefused) || !strings.Contains(fmt.Sprint(err), "RPC endpoint") {
			t.Errorf("refused with %v", err)
		}
		n.Chain.SetDown(false)
		time.Sleep(3 * time.Second)
		j := b.Wait(b.Submit(b.Job("hello", 1)).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
	})
}

// A full disk under the buyer's journal in the middle of a job: work that is done
// is kept until the disk takes it, nothing is paid twice, and the reason is told.
func TestBuyerDiskFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		from, to time.Duration
	}{
		{"before the job", -time.Second, time.Second},
		{"while leasing", 5 * time.Millisecond, 10 * time.Second},
		{"in mid-job, briefly", 3 * time.Second, 4500 * time.Millisecond},
		{"in mid-job", 3 * time.Second, 20 * time.Second},
		{"at its end", 7 * time.Second, 12 * time.Second},
		{"while settling", 9500 * time.Millisecond, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Programs: programs, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				full := fmt.Errorf("writing journal: %w", store.ErrFull)
				if c.from < 0 {
					b.Fill(full)
					if _, err := b.Node.Buyer().Submit(t.Context(), buyer.Submission{Spec: b.Job("work", 2, "8"), Once: "k"}); !errors.Is(err, store.ErrFull) {
						t.Errorf("a job that could not be journalled: %v", err)
					}
					b.Fill(nil)
					if len(b.Node.Buyer().Jobs()) != 0 {
						t.Error("a job that could not be journalled is kept")
					}
					return
				}
				id := b.Submit(b.Job("work", 2, "8")).ID
				time.Sleep(c.from)
				b.Fill(full)
				time.Sleep(c.to - c.from)
				b.Fill(nil)
				j := b.Wait(id, 2*time.Minute)
				if j.State == buyer.Failed {
					n.wants(t, b, j, buyer.Failed, buyer.CodePeer, "journal", store.ErrFull.Error())
				} else {
					n.check(t, b, j, buyer.Succeeded)
					n.checkPayer(t, b)
				}
				n.Settle()
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
				t.Log(j.Summary(), j.Ranks[0].Restarts, j.Ranks[1].Restarts)
			})
		})
	}
}

// A full disk under a provider's journal: it promises nothing it cannot keep, work
// goes elsewhere or on, and when there is room again its units are free.
func TestProviderDiskFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		from, to time.Duration
	}{
		{"before the order", -time.Second, 20 * time.Second},
		{"while leasing", 22 * time.Millisecond, 10 * time.Second},
		{"in mid-job, briefly", 3 * time.Second, 4500 * time.Millisecond},
		{"in mid-job", 3 * time.Second, 20 * time.Second},
		{"at its end", 7 * time.Second, 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Programs: programs, Price: map[int]string{0: "0.5"}, Log: Logger()})
				time.Sleep(5 * time.Second)
				b, p := n.Buyer(0), n.Provider(1)
				full := fmt.Errorf("writing journal: %w", store.ErrFull)
				if c.from < 0 {
					p.Fill(full)
				}
				id := b.Submit(b.Job("work", 2, "8")).ID
				time.Sleep(max(c.from, 0))
				p.Fill(full)
				time.Sleep(c.to - c.from)
				p.Fill(nil)
				j := b.Wait(id, 2*time.Minute)
				n.check(t, b, j, buyer.Succeeded)
				n.checkPayer(t, b)
				n.Settle()
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
				t.Log(j.Summary(), j.Ranks[0].Restarts, j.Ranks[1].Restarts)
			})
		})
	}
}
