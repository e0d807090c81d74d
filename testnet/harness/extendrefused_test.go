package harness

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// Whatever keeps a lease from being made longer, the answer says it; the job goes on there until the old end and is then done
// elsewhere, and of both leases nothing is lost and nothing paid twice.
func TestExtendRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		configure func(i int, c *config.Config) // provider 1 is the cheap one, peer 2 buys
		refuse    func(t *testing.T, p *Peer) error
		limits    map[int]string
		by        time.Duration
		words     []string
	}{
		{
			name: "hours", by: time.Hour, words: []string{"past the end of the hours", "00:30"},
			configure: func(i int, c *config.Config) {
				if i == 1 {
					c.Provide.Hours, c.Provide.TimeZone = []string{"daily 00:00-00:30"}, "UTC"
				}
			},
		},
		{
			name: "paused", by: time.Minute, words: []string{"nothing new", "no lease longer"},
			refuse: func(t *testing.T, p *Peer) error { return p.Node.Provider().Pause(t.Context()) },
		},
		{
			name: "drained", by: time.Minute, words: []string{"nothing new", "no lease longer"},
			refuse: func(t *testing.T, p *Peer) error { return p.Node.Provider().Drain(t.Context()) },
		},
		{
			name: "dearer", by: time.Minute, words: []string{"got 0.18", "want at least 0.50"},
			refuse: func(t *testing.T, p *Peer) error {
				return p.Node.Provider().SetPrice(t.Context(), "cpu", 500_000)
			},
		},
		{
			name: "longer than is sold", by: time.Hour, words: []string{"requested, want"},
			configure: func(i int, c *config.Config) {
				if i == 1 {
					c.Provide.MaxTime = 10 * time.Minute
				}
			},
		},
		{
			// Of 0.01 tokens the lease of 10 s at 0.18 an hour can take 0.0005, and one of 20 minutes 0.06.
			name: "over the limit for one provider", by: 20 * time.Minute, words: []string{"perProviderPerDay"},
			limits: map[int]string{2: "0.01"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all, runs := counted()
				n := New(t, Options{Providers: 2, Units: 1, Programs: all, Price: map[int]string{1: "0.18"}, Limits: c.limits, Configure: c.configure, Log: Logger()})
				time.Sleep(3 * time.Second)
				b, p := n.Buyer(0), n.Provider(1)
				spec := b.Job("count", 1, "14")
				spec.Timeouts.Run = 10 * time.Second
				id := b.Submit(spec).ID
				time.Sleep(3 * time.Second)
				if c.refuse != nil {
					if err := c.refuse(t, p); err != nil {
						t.Fatal(err)
					}
				}
				x := b.extend(t, id, c.by)
				if states(x) != "refused" || x.Ranks[0].Provider != p.Key.Key() || x.Ranks[0].Extra != 0 {
					t.Fatalf("%+v", x)
				}
				for _, w := range c.words {
					if !strings.Contains(x.Ranks[0].Reason, w) {
						t.Errorf("the reason %q does not say %q", x.Ranks[0].Reason, w)
					}
				}
				if runs.Load() != 1 {
					t.Errorf("%d runs after the refusal", runs.Load())
				}
				limited := c.limits != nil // then no provider may be paid for so long
				if limited {
					if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				j := b.Wait(id, 2*time.Minute)
				n.Settle()
				want, leases := buyer.Succeeded, 2
				if limited {
					want, leases = buyer.Stopped, 1
				}
				accounts := n.check(t, b, j, want)
				if len(accounts) != leases || int(runs.Load()) != leases || j.Ranks[0].Restarts != leases-1 || accounts[0].Provider == accounts[leases-1].Provider && !limited {
					t.Errorf("%d leases, %d runs, %d restarts\n%s", len(accounts), runs.Load(), j.Ranks[0].Restarts, b.Why(id))
				}
				n.checkPayer(t, b)
				for i := range 2 {
					n.checkQuiet(t, n.Provider(i), b)
				}
			})
		})
	}
}

// A refusal is not for good: once the provider sells again, the next extension makes the same lease longer, and the program
// was never begun anew.
func TestExtendAfterRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 1, Units: 1, Programs: all, Log: Logger()})
		time.Sleep(3 * time.Second)
		b, p := n.Buyer(0), n.Provider(0)
		spec := b.Job("count", 1, "30")
		spec.Timeouts.Run = 20 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(3 * time.Second)
		if err := p.Node.Provider().Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 { // asking again does not help, and costs nothing
			if x := b.extend(t, id, 10*time.Second); states(x) != "refused" {
				t.Fatalf("%+v", x)
			}
		}
		if err := p.Node.Provider().Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x := b.extend(t, id, 10*time.Second); states(x) != "extended" {
			t.Fatalf("%+v", x)
		}
		j := b.Wait(id, time.Minute)
		n.Settle()
		inARow(t, n.check(t, b, j, buyer.Succeeded), 2, true)
		n.checkPayer(t, b)
		n.checkQuiet(t, p, b)
		if runs.Load() != 1 || j.Ranks[0].Restarts != 0 {
			t.Errorf("%d runs, %d restarts", runs.Load(), j.Ranks[0].Restarts)
		}
	})
}

// Nobody is asked for more time than the buyer may pay for: by job, by day, and by the key that the job was submitted with.
// The job keeps what it had, and less is still to be had.
func TestExtendSpendingLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		peer  config.Limits
		key   *buyer.Limits
		words []string
	}{
		{"job", config.Limits{PerJob: "0.02"}, nil, []string{"this peer may spend 0.02 STAR per job"}},
		{"day", config.Limits{PerDay: "0.02"}, nil, []string{"that this peer may spend per day", "until 00:00 UTC"}},
		{"key's job", config.Limits{}, &buyer.Limits{PerJob: 20_000}, []string{"key ci may spend 0.02 STAR per job"}},
		{"key's day", config.Limits{PerDay: "10"}, &buyer.Limits{PerDay: 20_000}, []string{"that key ci may spend per day"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all, runs := counted()
				n := New(t, Options{Providers: 1, Units: 1, Programs: all, Log: Logger(), Configure: func(i int, cfg *config.Config) {
					if i == 1 {
						cfg.Buy.Limits = c.peer
					}
				}})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("count", 1, "14")
				spec.Timeouts.Run = 10 * time.Second
				sub := buyer.Submission{Spec: spec}
				if c.key != nil {
					if _, _, err := b.Node.Buyer().AddKey(t.Context(), "ci", *c.key); err != nil {
						t.Fatal(err)
					}
					sub.Key = "ci"
					if _, _, err := b.Node.Files().PutBlob(t.Context(), "ci", bytes.NewReader(runtimetest.FakeModule("count"))); err != nil { // a key's jobs have the files that it uploaded
						t.Fatal(err)
					}
				}
				j, err := b.Node.Buyer().Submit(t.Context(), sub)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				before := b.Node.Buyer().Spending(1, "", true)
				_, err = b.Node.Buyer().Extend(t.Context(), j.ID, time.Hour, 0)
				if !errors.Is(err, buyer.ErrLimit) {
					t.Fatalf("over the limit: %v", err)
				}
				for _, w := range c.words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("the error %q does not say %q", err, w)
					}
				}
				if now, err := b.Node.Buyer().Job(j.ID); err != nil || now.Extended != 0 || now.Spec.Timeouts.Run != 10*time.Second || now.Ranks[0].Unextended != "" {
					t.Errorf("what was refused is in the job: %+v (%v)", now.Spec.Timeouts, err)
				}
				after := b.Node.Buyer().Spending(1, "", true)
				if fmt.Sprint(before.Days, before.Providers) != fmt.Sprint(after.Days, after.Providers) {
					t.Errorf("what was refused counts: %+v, before %+v", after.Days, before.Days)
				}
				// A minute costs no more than 0.0194.
				if x := b.extend(t, j.ID, time.Minute); states(x) != "extended" {
					t.Errorf("%+v", x)
				}
				j = b.Wait(j.ID, time.Minute)
				n.Settle()
				inARow(t, n.check(t, b, j, buyer.Succeeded), 2, true)
				n.checkPayer(t, b)
				n.checkQuiet(t, n.Provider(0), b)
				if runs.Load() != 1 {
					t.Errorf("%d runs", runs.Load())
				}
			})
		})
	}
}

// A job that has no lease yet has nothing to be made longer: nobody is asked and nothing is set aside; what it gets is for the
// new time. More than its budget or its limits is refused as for any other.
func TestExtendQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 1, Units: 1, RTT: 400 * time.Millisecond, Programs: all, Log: Logger(), Configure: func(i int, cfg *config.Config) {
			if i == 1 {
				cfg.Buy.Limits.PerJob = "0.05"
			}
		}})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("count", 1, "14")
		spec.Timeouts.Run = 5 * time.Second
		id := b.Submit(spec).ID
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} { // nothing is signed within a round trip
			time.Sleep(wait)
			if j, err := b.Node.Buyer().Job(id); err != nil || j.State != buyer.Queued && j.State != buyer.Matching {
				t.Fatalf("the job does not wait any more: %s (%v)", j.Summary(), err)
			}
			if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Hour, 0); !errors.Is(err, buyer.ErrLimit) {
				t.Errorf("over the limit: %v", err)
			}
			if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 1); !errors.Is(err, buyer.ErrRefused) || !strings.Contains(err.Error(), "less than the job has") {
				t.Errorf("with less money: %v", err)
			}
			x := b.extend(t, id, 10*time.Second)
			if states(x) != "waiting" || x.Ranks[0].Extra != 0 || !x.Until.IsZero() {
				t.Errorf("%+v", x)
			}
			if accounts, err := b.Node.Buyer().Receipts(t.Context(), id); err != nil || len(accounts) != 0 {
				t.Errorf("%d leases of a job that waits (%v)", len(accounts), err)
			}
		}
		j := b.Wait(id, time.Minute)
		n.Settle()
		accounts := n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		n.checkQuiet(t, n.Provider(0), b)
		if runs.Load() != 1 || j.Ranks[0].Restarts != 0 || j.Extended != 2 || j.Spec.Timeouts.Run != 25*time.Second {
			t.Fatalf("%d runs, %d restarts, extended %d times to %v\n%s", runs.Load(), j.Ranks[0].Restarts, j.Extended, j.Spec.Timeouts.Run, b.Why(id))
		}
		// Its lease is for the new time, or, when it was ordered before, was made longer when it was signed.
		var slots market.Slot
		for _, a := range accounts {
			l, err := market.UnmarshalLease(a.Signed)
			if err != nil {
				t.Fatal(err)
			}
			slots += l.Core.End - l.Core.Start
		}
		if want := market.Slot(n.Genesis.SlotsIn(25 * time.Second)); slots < want {
			t.Errorf("%d leases of %d slots together, want %d", len(accounts), slots, want)
		}
		// One that nobody takes fails all the same, and has cost nothing.
		if err := n.Provider(0).Node.Provider().Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		id = b.Submit(spec).ID
		b.extend(t, id, 10*time.Second)
		if j = b.Wait(id, time.Minute); j.State != buyer.Failed || j.Owed != 0 {
			t.Errorf("%s", j.Summary())
		}
		if _, err := b.Node.Buyer().Extend(t.Context(), id, time.Minute, 0); !errors.Is(err, buyer.ErrNotRunning) || !strings.Contains(err.Error(), "starling job rerun") {
			t.Errorf("of a job that failed: %v", err)
		}
	})
}

// A job of rounds is made longer over all of them: in the middle of a round, also for a rank that has done its part of it, and
// in the last round only for the ranks that have not. Where a provider refuses, what the rounds carry comes along to the next.
func TestExtendRounds(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run(map[bool]string{false: "agreed", true: "refused"}[refuse], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 3, Units: 1, Programs: programs, Price: map[int]string{1: "0.18", 2: "0.18"}, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.rounds(3, 6)
				spec.Timeouts.Run = 14 * time.Second
				id := b.Submit(spec).ID
				time.Sleep(4 * time.Second)
				if refuse {
					if err := n.Provider(2).Node.Provider().Pause(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				x := b.extend(t, id, time.Minute)
				want := "extended extended"
				if refuse {
					want = "extended refused"
					if x.Ranks[0].Provider == n.Provider(2).Key.Key() {
						want = "refused extended"
					}
				}
				if states(x) != want {
					t.Errorf("%s, want %s: %+v", states(x), want, x)
				}
				j := b.Wait(id, 3*time.Minute)
				n.Settle()
				accounts := n.check(t, b, j, buyer.Succeeded)
				n.checkPayer(t, b)
				for i := range 3 {
					n.checkQuiet(t, n.Provider(i), b)
				}
				if len(accounts) != 4 { // two each, or one of each provider and the successor
					t.Errorf("%d leases\n%s", len(accounts), b.Why(id))
				}
				if !refuse {
					inARow(t, accounts, 2, true)
				}
				if restarts := j.Ranks[0].Restarts + j.Ranks[1].Restarts; restarts != map[bool]int{true: 1}[refuse] {
					t.Errorf("%d restarts\n%s", restarts, b.Why(id))
				}
				if model := b.file(t, *j.Carry, "model"); model == "" || !strings.Contains(model, "2.0;") || !strings.Contains(model, "2.1;") {
					t.Errorf("the model is %q", model)
				}
			})
		})
	}
}

// In the last round a rank that is done has all that it needs.
func TestExtendDoneRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 1, Programs: with("uneven", func(p guest.Process) int {
			if env(p, buyer.EnvRank) == "0" {
				return 0
			}
			return programs["work"](p)
		}), Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("uneven", 2, "14")
		spec.Timeouts.Run = 10 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(4 * time.Second)
		if x := b.extend(t, id, time.Minute); states(x) != "enough extended" || x.Ranks[0].Extra != 0 {
			t.Errorf("%+v", x)
		}
		j := b.Wait(id, time.Minute)
		n.Settle()
		accounts := n.check(t, b, j, buyer.Succeeded)
		n.checkPayer(t, b)
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if len(accounts) != 3 {
			t.Errorf("%d leases\n%s", len(accounts), b.Why(id))
		}
	})
}
