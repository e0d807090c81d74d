package harness

import (
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
