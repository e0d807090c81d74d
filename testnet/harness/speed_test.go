package harness

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

var orders = flag.Int("orders", 10, "how many orders TestOrderToLease places on each route")

// TestOrderToLease measures how long it takes from an order to leases that both
// sides have signed, among 20 peers. In a bubble time passes only while
// everybody waits, so that the figures are round trips and timers and no
// computing, and do not depend on the machine. `starling testnet bench` reads them as the
// test's attributes. (It is no benchmark because a bubble needs a test.)
func TestOrderToLease(t *testing.T) {
	t.Parallel()
	for _, route := range []struct {
		name     string
		p50, p99 time.Duration // at 2 ms
	}{{buyer.RouteDirect, 50 * time.Millisecond, 200 * time.Millisecond}, {buyer.RouteGossip, time.Second, time.Second}} {
		for _, rtt := range []time.Duration{2 * time.Millisecond, 50 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/RTT=%v", route.name, rtt), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					took := orderToLease(t, rtt, route.name == buyer.RouteGossip)
					p50, p99 := took[(len(took)+1)/2-1], took[(99*len(took)+99)/100-1]
					t.Attr("orders", fmt.Sprint(len(took)))
					t.Attr("p50_ms", fmt.Sprint(float64(p50)/float64(time.Millisecond)))
					t.Attr("p99_ms", fmt.Sprint(float64(p99)/float64(time.Millisecond)))
					if rtt == 2*time.Millisecond && (p50 > route.p50 || p99 > route.p99) {
						t.Errorf("order to lease takes %v at the median and %v at the 99th percentile, at most %v and %v are wanted", p50, p99, route.p50, route.p99)
					}
				})
			})
		}
	}
}

// orderToLease places orders, one after the other, and returns how long each took, sorted.
func orderToLease(t *testing.T, rtt time.Duration, gossip bool) []time.Duration {
	n := New(t, Options{Providers: 19, RTT: rtt, Programs: map[string]guest.Program{"end": func(guest.Process) int { return 0 }}, Log: Logger()})
	time.Sleep(20 * time.Second) // offers are found, the mesh has formed
	b := n.Buyer(0)
	if got := len(b.Node.Buyer().Exchange().Offers(t.Context(), "cpu")); got != 19 {
		t.Fatalf("the buyer knows %d of 19 offers", got)
	}
	spec := b.Job("end", 1)
	spec.Placement.GossipOnly = gossip
	spec.Payment.Budget = 1_000_000
	var took []time.Duration
	var jobs []string
	for range *orders {
		j := b.Submit(spec)
		jobs = append(jobs, j.ID)
		took = append(took, b.leased(t, j.ID))
		time.Sleep(time.Second)
	}
	for _, id := range jobs {
		n.check(t, b, b.Wait(id, time.Minute), buyer.Succeeded)
	}
	slices.Sort(took)
	return took
}

// leased waits for the leases of a job and returns how long its order took.
func (p *Peer) leased(t *testing.T, id string) time.Duration {
	t.Helper()
	for {
		steps, more, err := p.Node.Buyer().Trace(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			switch s.Kind {
			case record.StepLeased:
				return s.Took
			case record.StepEnded:
				t.Fatalf("job %s ended without a lease\n%s", id, p.Why(id))
			}
		}
		<-more
	}
}

// toStart waits until a job has ended well, and returns how long after its lease its program was seen running.
func (p *Peer) toStart(t *testing.T, id string) time.Duration {
	t.Helper()
	if j := p.Wait(id, time.Minute); j.State != buyer.Succeeded {
		t.Fatalf("%s\n%s", j.Summary(), p.Why(id))
	}
	steps, _, err := p.Node.Buyer().Trace(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := map[record.StepKind]time.Time{}
	for _, s := range steps {
		at[s.Kind] = s.At
	}
	return at[record.StepStarted].Sub(at[record.StepLeased])
}

// A newcomer's program starts as soon as its lease's escrow was seen. Those of a buyer that has paid start before, as
// many as there are: leases that end before their escrow was seen use up nothing.
func TestProgramsOfPayersStartAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Programs: programs, Log: Logger()})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		short := b.Job("hello", 1)
		first := b.toStart(t, b.Submit(b.Job("work", 1, "2")).ID)
		time.Sleep(time.Minute) // it is claimed
		var last time.Duration
		for range 20 {
			last = b.toStart(t, b.Submit(short).ID)
		}
		t.Logf("a newcomer's program starts %v after its lease, a payer's %v", first, last)
		if last > 100*time.Millisecond || first < last {
			t.Errorf("a newcomer's program starts %v after its lease, a payer's %v", first, last)
		}
	})
}
