package harness

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// oversell makes a provider's machine serve somebody else too from a moment on. Time is that of the bubble.
func (p *Peer) oversell(after time.Duration) {
	from := time.Now().Add(after)
	p.Fake.Speed = func() float64 {
		if time.Now().Before(from) {
			return runtimetest.DefaultSpeed
		}
		return 0.45 * runtimetest.DefaultSpeed
	}
}

// idlers has a program that does next to nothing for the seconds of its argument.
func idlers() map[string]guest.Program {
	all := maps.Clone(programs)
	all["idle"] = func(p guest.Process) int {
		var n int
		fmt.Sscan(p.Args()[0], &n)
		for end := p.Now().Add(time.Duration(n) * time.Second); p.Now().Before(end); p.Burn() {
			time.Sleep(time.Second)
		}
		return 0
	}
	return all
}

// Three jobs run: one on honest units, two on a provider whose machine serves somebody else too from the ninth minute on.
// All are probed within their share of the time, and every record can be checked by anybody. Nothing is found where nothing is; the others'
// buyer is told and remembers it, and goes on or not as each job says.
func TestProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Programs: idlers(), Log: Logger()})
		n.Provider(0).oversell(8 * time.Minute)
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		submit := func(policy job.Probes, length string, units uint32, exclude ...sign.Key) string {
			spec := b.Job("idle", 1, length)
			spec.Probes, spec.Timeouts.Run, spec.Placement.Exclude, spec.Resources.Units = policy, 3*time.Hour, exclude, units
			id := b.Submit(spec).ID
			time.Sleep(10 * time.Second)
			return id
		}
		// While the first has all of the honest provider, the others can only go to the other one.
		cheat := n.Provider(0).Key.Key()
		honest, warned, moving := submit(job.ProbesWarn, "400", 2, cheat), submit(job.ProbesWarn, "1800", 1), submit(job.ProbesMove, "1800", 1)
		for _, id := range []string{honest, warned, moving} {
			j := b.Wait(id, 6*time.Hour)
			n.check(t, b, j, buyer.Succeeded)
			why, r := b.Why(id), j.Ranks[0]
			x := r.Exclusive
			if x == nil || x.Watch.Probes == 0 || x.Wrong+x.Unanswered > 0 || x.Budget.Spent > x.Budget.Lease/1000 {
				t.Fatalf("%+v\n%s", x, why)
			}
			records, err := b.Node.Buyer().Probes(t.Context(), id)
			if err != nil || len(records) < min(x.Watch.Probes, 32) {
				t.Fatalf("%d records of %d probes: %v", len(records), x.Watch.Probes, err)
			}
			slow := false
			for _, r := range records {
				slow = slow || r.Observation().Rate() < runtimetest.DefaultSpeed/2
				if err := r.Check(n.Genesis.Domain()); err != nil {
					t.Error(err)
				}
			}
			if shared := id != honest; strings.Contains(why, "the leased units are shared") != shared || slow != shared {
				t.Errorf("shared: %t, slow records: %t\n%s", shared, slow, why)
			}
			if moved := r.Provider != cheat && r.Restarts == 1; id != honest && moved != (id == moving) {
				t.Errorf("it ended on %s after %d moves\n%s", r.Provider.Short(), r.Restarts, why)
			}
			if id == honest && (x.Watch.Alarms > 0 || !strings.Contains(x.Text(), "probe")) {
				t.Errorf("%q", x.Text())
			}
			if h := x.Health; h == nil || h.Before == nil || h.After == nil || len(h.Changes) > 0 {
				t.Errorf("%+v", h)
			}
		}
		rep, err := b.Node.Status().Reputation(cheat.String())
		if err != nil || rep.Provider.Bad == 0 {
			t.Errorf("%+v, %v", rep.Provider, err)
		}
	})
}

// ill is a machine whose GPU breaks when the test says so.
type ill struct {
	*cards
	mu sync.Mutex
	of gpu.Health
}

func (c *ill) Health(_ context.Context, uuids []string) (map[string]gpu.Health, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]gpu.Health{}
	for _, u := range uuids {
		out[u] = c.of
	}
	return out, nil
}

// A GPU that breaks during a lease is in the provider's own word, which both have signed, and stands against it.
func TestHealthOfADevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		card := &ill{cards: machine(true, "NVIDIA L4"), of: gpu.Health{ECC: &gpu.ECC{}, Xid: &gpu.Xid{}}}
		n := New(t, Options{Providers: 2, Programs: idlers(), Log: Logger(), GPUs: map[int]gpu.Source{1: card}, Configure: func(i int, c *config.Config) {
			if i == 1 {
				sellsGPUs(c, "1.00")
			}
		}})
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Container("idle", "gpu", 1, "30")).ID
		time.Sleep(20 * time.Second)
		card.mu.Lock()
		card.of = gpu.Health{ECC: &gpu.ECC{Uncorrectable: 1, Correctable: 3}, Xid: &gpu.Xid{Count: 2, Last: 79, Fault: 79}}
		card.mu.Unlock()
		j := b.Wait(id, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		h := j.Ranks[0].Exclusive.Health
		if h == nil || h.Before == nil || h.After == nil || len(h.Changes) != 3 || len(h.After.Devices) != 1 || h.After.Devices[0].UUID != "GPU-0" {
			t.Fatalf("%+v\n%s", h, b.Why(id))
		}
		for _, s := range []*buyer.Snapshot{h.Before, h.After} {
			if s.Verify(n.Genesis.Domain(), n.Provider(1).Key.Key(), s.ProviderSig) != nil || s.Verify(n.Genesis.Domain(), b.Key.Key(), s.BuyerSig) != nil {
				t.Errorf("the snapshot %s is not signed by both", s.When)
			}
		}
		if why := b.Why(id); !strings.Contains(why, "1 uncorrectable memory errors") {
			t.Errorf("%s", why)
		}
		rep, err := b.Node.Status().Reputation(n.Provider(1).Key.Key().String())
		if err != nil || rep.Provider.Bad == 0 {
			t.Errorf("%+v, %v", rep.Provider, err)
		}
		seen := 0
		for _, kind := range n.Provider(1).Writes() {
			if kind == "seen" {
				seen++
			}
		}
		if seen != 2 {
			t.Errorf("the provider keeps %d snapshots that its buyer signed", seen)
		}
	})
}
