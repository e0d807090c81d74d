package harness

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// A program that ends while its buyer is away has done its work: a buyer that comes back after its lease's end fetches
// outputs and log, from a provider that was restarted meanwhile, and has nothing done again.
func TestBuyerAway(t *testing.T) {
	t.Parallel()
	for name, crashes := range map[string]int{"once": 1, "and once more on its way back": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Providers: 2, Price: map[int]string{0: "0.9"}, Programs: map[string]guest.Program{"leave": func(p guest.Process) int {
					for range 2000 {
						p.Burn()
					}
					_, _ = p.Stdout().Write([]byte("done\n"))
					if guest.WriteFile(p, "/out/result", []byte("the result")) != nil {
						return 1
					}
					return 0
				}}, Log: Logger()})
				time.Sleep(3 * time.Second)
				b, p := n.Buyer(0), n.Provider(1)
				spec := b.Job("leave", 1)
				spec.Outputs = []job.Output{{Path: "/out"}}
				spec.Timeouts.Run = 20 * time.Second
				j := b.Submit(spec)
				b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
				time.Sleep(time.Second)
				b.Kill()
				time.Sleep(30 * time.Second)
				p.Kill()
				p.Restart()
				time.Sleep(time.Minute)
				b.Restart()
				for range crashes - 1 {
					time.Sleep(time.Second)
					b.Kill()
					b.Restart()
				}
				j = b.Wait(j.ID, time.Minute)
				if r := j.Ranks[0]; j.State != buyer.Succeeded || r.Restarts != 0 || len(r.Outputs) != 1 {
					t.Fatalf("%s, %d restarts, outputs %v\n%s", j.Summary(), r.Restarts, r.Outputs, b.Why(j.ID))
				}
				if out := b.log(t, j.ID, 0); out != "done\n" {
					t.Errorf("log %q", out)
				}
				if took := j.Ended.Sub(j.Started); took < 90*time.Second {
					t.Errorf("it ended after %v", took)
				}
				n.checkPayer(t, b)
			})
		})
	}
}

// A buyer's peer that is killed and away for twelve seconds, within what it had paid ahead, costs nothing: the same execution goes on, is
// paid for once, and its provider is blamed for nothing. Away for longer, it loses what ran, and the provider is not blamed either.
func TestBuyerAwayForSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away time.Duration
		lost bool
	}{"within the horizon": {12 * time.Second, false}, "past it": {50 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := map[string]int{}
				var mu sync.Mutex
				n := New(t, Options{Providers: 2, Programs: map[string]guest.Program{"tick": func(p guest.Process) int {
					mu.Lock()
					began["tick"]++
					mu.Unlock()
					for range 60 {
						time.Sleep(time.Second)
						_, _ = p.Stdout().Write([]byte("tick\n"))
					}
					return 0
				}}, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				j := b.Submit(b.Job("tick", 1))
				b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
				time.Sleep(20 * time.Second)
				b.Kill()
				time.Sleep(c.away)
				b.Restart()
				j = b.Wait(j.ID, 5*time.Minute)
				starts := map[bool]int{false: 1, true: 2}[c.lost]
				if j.State != buyer.Succeeded || began["tick"] != starts || j.Ranks[0].Restarts != starts-1 {
					t.Errorf("%s, %d executions, %d restarts\n%s", j.Summary(), began["tick"], j.Ranks[0].Restarts, b.Why(j.ID))
				}
				if why := b.Why(j.ID); !strings.Contains(why, "this peer was away for ") {
					t.Errorf("nothing is said of the outage:\n%s", why)
				}
				// 60 s of one unit at 0.36 an hour are 6,000 base units.
				if !c.lost && (j.Owed < 5900 || j.Owed > 7000) {
					t.Errorf("%d base units for one minute\n%s", j.Owed, b.Why(j.ID))
				}
				n.unblamed(t, b)
				n.Settle()
				n.checkEscrow(t, b, j.ID, buyer.Succeeded)
			})
		})
	}
}
