package harness

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// A provider that cannot pay the fees of a claim says so and sells nothing. One whose SOL is gone in the middle of a lease claims what it
// earned when it has some again, and loses nothing.
func TestProviderWithoutFeesSellsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Log: Logger(), Programs: map[string]guest.Program{"work": func(guest.Process) int {
			time.Sleep(20 * time.Second)
			return 0
		}}})
		p, b := n.Provider(0), n.Buyer(0)
		time.Sleep(10 * time.Second)
		if offers, err := b.Status().Offers(context.Background(), "cpu"); err != nil || len(offers) != 1 {
			t.Fatalf("%v, %d offers", err, len(offers))
		}
		n.Programs.SetLamports(p.Key.Key(), 0)
		time.Sleep(10 * time.Second)
		spec := b.Job("work", 1)
		spec.Timeouts.Queue = 5 * time.Second
		q, err := b.Node.Buyer().Quote(context.Background(), buyer.Submission{Spec: spec})
		if err != nil || q.Places || !strings.Contains(q.Reason, "fees of its claims") {
			t.Errorf("%v: %+v", err, q)
		}
		if o, err := p.Seller().OwnOffers(); err != nil || o.State != provider.Feeless || !strings.Contains(o.Reason, "got 0.00 SOL") {
			t.Errorf("%v: %+v", err, o)
		}
		problems := p.Status().Info(context.Background()).Problems
		if !slices.ContainsFunc(problems, func(f api.Fault) bool {
			return f.Service == "provider" && strings.HasPrefix(f.Problem, "nothing is sold: ") && strings.HasPrefix(f.Remedy, "send SOL")
		}) {
			t.Errorf("problems %v", problems)
		}
		n.Programs.SetLamports(p.Key.Key(), 1_000_000_000)
		time.Sleep(10 * time.Second)
		j := b.Submit(spec)
		b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankRunning })
		time.Sleep(5 * time.Second)
		n.Programs.SetLamports(p.Key.Key(), 0)
		b.until(j.ID, func(j buyer.Job) bool { return j.Ranks[0].State == buyer.RankDone })
		time.Sleep(3 * time.Second)
		n.Programs.SetLamports(p.Key.Key(), 1_000_000_000)
		if j = b.Wait(j.ID, 5*time.Minute); j.State != buyer.Succeeded {
			t.Fatalf("%s\n%s", j.Summary(), b.Why(j.ID))
		}
		n.Settle()
		var earned, claimed, lost market.Amount
		for _, a := range p.Seller().Leases() {
			earned, claimed, lost = earned+a.Earned, claimed+a.Claimed, lost+a.Lost
		}
		if lost != 0 || claimed == 0 || claimed != earned {
			t.Errorf("earned %d, claimed %d, lost %d", earned, claimed, lost)
		}
	})
}
