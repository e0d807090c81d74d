package harness

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// programs are what the networks of these tests can run.
var programs = map[string]guest.Program{
	"hello": func(p guest.Process) int {
		fmt.Fprintln(p.Stdout(), "hello from", env(p, buyer.EnvRank), "of", env(p, buyer.EnvCount))
		return 0
	},
	"work": func(p guest.Process) int { // burns the seconds of its argument
		var n int
		fmt.Sscan(p.Args()[0], &n)
		for i := range n * 1000 {
			if i%1000 == 0 {
				fmt.Fprintln(p.Stdout(), "second", i/1000)
			}
			p.Burn()
		}
		return 0
	},
	"fail": func(p guest.Process) int { return 7 },
}

func env(p guest.Process, name string) string {
	for _, e := range p.Environ() {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// check fails the test unless the job ended as wanted and the money is right.
func (n *Net) check(t *testing.T, p *Peer, j buyer.Job, want buyer.State) {
	t.Helper()
	if j.State != want {
		t.Fatalf("job ended as %s\n%s", j.Summary(), p.Why(j.ID))
	}
	if j.Paid != j.Owed {
		t.Errorf("job owes %d and paid %d", j.Owed, j.Paid)
	}
	if err := n.Chain.Check(); err != nil {
		t.Errorf("ledger: %v", err)
	}
	var sum market.Amount
	accounts, err := p.Node.Buyer().Receipts(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if got := n.Chain.Paid(a.Lease); got != a.Owed {
			t.Errorf("lease %s was paid %d, its vouchers say %d", a.Lease.Short(), got, a.Owed)
		}
		sum += a.Owed
	}
	if sum != j.Owed {
		t.Errorf("leases add up to %d, the job owes %d", sum, j.Owed)
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Programs: programs, Log: Logger()})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		j := b.Wait(b.Submit(b.Job("work", 5, "12")).ID, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		if j.Receipts < 5*10 {
			t.Errorf("%d receipts for 5 ranks of 12 intervals", j.Receipts)
		}
		t.Logf("%s\n%s", j.Summary(), b.Why(j.ID))
	})
}
