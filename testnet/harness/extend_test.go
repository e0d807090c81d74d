package harness

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// counted is a program that works as long as its argument says, and how often it was begun.
func counted() (map[string]guest.Program, *atomic.Int32) {
	runs := new(atomic.Int32)
	return with("count", func(p guest.Process) int {
		runs.Add(1)
		return programs["work"](p)
	}), runs
}

func (p *Peer) extend(t *testing.T, id string, by time.Duration) buyer.Extension {
	t.Helper()
	x, err := p.Node.Buyer().Extend(t.Context(), id, by, 0)
	if err != nil {
		t.Fatalf("extending: %v\n%s", err, p.Why(id))
	}
	return x
}

func states(x buyer.Extension) string {
	var out []string
	for _, r := range x.Ranks {
		out = append(out, string(r.State))
	}
	return strings.Join(out, " ")
}

// inARow fails the test unless each rank has so many leases that cost what their slots do, begin where the one before ends
// and, with gapless, are used up to their last slot when another follows: a provider that was away at a lease's end has lost
// what it was not paid for by then.
func inARow(t *testing.T, accounts []buyer.LeaseAccount, want int, gapless bool) {
	t.Helper()
	byRank := map[uint32][]market.LeaseCore{}
	for _, a := range accounts {
		l, err := market.UnmarshalLease(a.Signed)
		if err != nil {
			t.Fatal(err)
		}
		byRank[a.Rank] = append(byRank[a.Rank], l.Core)
		if len(a.Receipts) == 0 {
			t.Errorf("rank %d: lease %s has no receipt", a.Rank, a.Lease.Short())
			continue
		}
		last := a.Receipts[len(a.Receipts)-1]
		if most, _ := l.Core.Rate.Owed(uint64(last.To - a.Receipts[0].From)); !last.Final() || last.Cumulative != most || a.Owed != most {
			t.Errorf("rank %d: lease %s owes %d, %d by its receipts (final: %v)", a.Rank, a.Lease.Short(), a.Owed, most, last.Final())
		}
		if l.Core.Successor() && a.Receipts[0].From != l.Core.Start {
			t.Errorf("rank %d: lease %s is billed from %d, it starts at %d", a.Rank, a.Lease.Short(), a.Receipts[0].From, l.Core.Start)
		}
		for _, o := range accounts { // what goes over is used to its end
			if next, _ := market.UnmarshalLease(o.Signed); next.Core.Successor() && next.Core.Nonce == market.Nonce(a.Lease[:16]) && gapless && o.Owed > 0 && last.To != l.Core.End {
				t.Errorf("rank %d: lease %s ends at %d and has receipts until %d", a.Rank, a.Lease.Short(), l.Core.End, last.To)
			}
		}
	}
	for rank, cores := range byRank {
		if len(cores) != want {
			t.Errorf("rank %d has %d leases, want %d", rank, len(cores), want)
		}
	}
}

// A job that is made longer twice runs on under the leases that follow, without being started again.
func TestExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 2, Units: 1, Programs: all, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("count", 2, "40")
		spec.Timeouts.Run = 10 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(3 * time.Second)
		x := b.extend(t, id, 15*time.Second)
		if states(x) != "extended extended" || x.Ranks[0].Extra == 0 || time.Until(x.Until) > 23*time.Second {
			t.Errorf("%+v", x)
		}
		time.Sleep(time.Second)
		if x = b.extend(t, id, 40*time.Second); states(x) != "extended extended" {
			t.Errorf("%+v", x)
		}
		j := b.Wait(id, 2*time.Minute)
		n.Settle()
		accounts := n.check(t, b, j, buyer.Succeeded)
		inARow(t, accounts, 3, true)
		n.checkPayer(t, b)
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if runs.Load() != 2 || j.Ranks[0].Restarts != 0 || j.Extended != 2 {
			t.Errorf("%d runs, %d restarts, extended %d times", runs.Load(), j.Ranks[0].Restarts, j.Extended)
		}
		if log := b.log(t, id, 0); strings.Count(log, "second ") != 40 {
			t.Errorf("the log is not whole: %q", log)
		}
		if t.Failed() {
			t.Log(b.Why(id))
		}
	})
}

// A job that ends before its extension begins pays nothing for it; stop ends both, at once.
func TestExtendNotNeeded(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprint("stop ", stop), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all, runs := counted()
				n := New(t, Options{Providers: 1, Units: 1, Programs: all, Log: Logger()})
				time.Sleep(3 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("count", 1, "8")
				spec.Timeouts.Run = 20 * time.Second
				id := b.Submit(spec).ID
				time.Sleep(3 * time.Second)
				b.extend(t, id, time.Hour)
				want := buyer.Succeeded
				if stop {
					if err := b.Node.Buyer().Stop(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					want = buyer.Stopped
				}
				j := b.Wait(id, 30*time.Second)
				n.Settle()
				accounts := n.check(t, b, j, want)
				n.checkPayer(t, b)
				n.checkQuiet(t, n.Provider(0), b)
				if len(accounts) != 2 || accounts[0].Owed*accounts[1].Owed != 0 || runs.Load() != 1 {
					t.Errorf("%d leases, %d runs: %+v\n%s", len(accounts), runs.Load(), accounts, b.Why(id))
				}
			})
		})
	}
}

// A provider that is drained refuses; the job goes on there until its old end and is then taken to another provider.
func TestExtendRefusedByDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, runs := counted()
		n := New(t, Options{Providers: 2, Units: 1, Programs: all, Price: map[int]string{0: "0.5"}, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("count", 1, "14")
		spec.Timeouts.Run = 10 * time.Second
		id := b.Submit(spec).ID
		time.Sleep(3 * time.Second)
		if err := n.Provider(1).Node.Provider().Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := b.extend(t, id, time.Minute)
		if states(x) != "refused" || !strings.Contains(x.Ranks[0].Reason, "nothing new") {
			t.Errorf("%+v", x)
		}
		j := b.Wait(id, 2*time.Minute)
		n.Settle()
		accounts := n.check(t, b, j, buyer.Succeeded)
		if len(accounts) != 2 || accounts[0].Provider == accounts[1].Provider || runs.Load() != 2 || j.Ranks[0].Restarts != 1 {
			t.Errorf("%d leases, %d runs, %d restarts\n%s", len(accounts), runs.Load(), j.Ranks[0].Restarts, b.Why(id))
		}
		n.checkPayer(t, b)
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}
