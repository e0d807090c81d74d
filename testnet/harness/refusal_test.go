package harness

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/verify/reputation"
)

// unblamed fails the test when a buyer holds anything against a provider.
func (n *Net) unblamed(t *testing.T, b *Peer) {
	t.Helper()
	for i := range n.opts.Providers {
		v, err := b.Status().Reputation(n.Provider(i).Key.Key().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range v.Provider.Lines {
			if l.What == reputation.Failed.String() {
				t.Errorf("provider %d: %+v", i, l)
			}
		}
	}
}

// What a provider's egress or image policy refuses is refused by its offer or before the lease is signed: it costs nothing and is no failure,
// so that one mistaken --network internet ruins nobody's record.
func TestAttackRefusalRuinsReputation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const open, picky = 1, 2
		acme := "registry.acme.example/" + strings.Repeat("long/", 12)
		n := New(t, Options{Providers: 4, Log: Logger(), Programs: map[string]guest.Program{"work": func(guest.Process) int { return 0 }},
			Configure: func(i int, c *config.Config) {
				switch i {
				case open:
					c.Egress.Mode = "internet"
				case picky: // more than its offers have room for
					c.Provide.Images.Deny = []string{"docker.io/library/*", acme + "a/**", acme + "b/**", acme + "c/**"}
				default:
					c.Provide.Images.Deny = []string{"work"}
				}
			}})
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		outside := b.Container("work", "cpu", 2)
		outside.Network, outside.Timeouts.Queue = runtime.NetworkInternet, 5*time.Second
		q, err := b.Node.Buyer().Quote(context.Background(), buyer.Submission{Spec: outside})
		if err != nil || q.Places || !strings.Contains(q.Reason, "egress (nearest is ") {
			t.Errorf("%v, places %v: %s", err, q.Places, q.Reason)
		}
		j := b.Wait(b.Submit(outside).ID, time.Minute)
		if j.State != buyer.Failed || !strings.Contains(j.Reason, "gives containers no way to the internet") || j.Receipts != 0 {
			t.Errorf("%s, %d receipts\n%s", j.Summary(), j.Receipts, b.Why(j.ID))
		}
		n.unblamed(t, b)
		for _, network := range []runtime.Network{runtime.NetworkInternet, runtime.NetworkNone} {
			one := b.Container("work", "cpu", 1)
			one.Network = network
			j := b.Wait(b.Submit(one).ID, time.Minute)
			if j.State != buyer.Succeeded || j.Ranks[0].Provider != n.Provider(open).Key.Key() || j.Ranks[0].Restarts != 0 {
				t.Errorf("network %q: %s\n%s", network, j.Summary(), b.Why(j.ID))
			}
		}
		// Only the provider that runs it is left out: the others refuse, one of them when units are to be reserved.
		denied := b.Container("work", "cpu", 1)
		denied.Placement = job.Placement{Exclude: []sign.Key{n.Provider(open).Key.Key()}}
		denied.Timeouts.Queue = 5 * time.Second
		j = b.Wait(b.Submit(denied).ID, time.Minute)
		if why := b.Why(j.ID); j.State != buyer.Failed || j.Receipts != 0 || !strings.Contains(why, "does not run image") || strings.Contains(why, "leased") {
			t.Errorf("%s, %d receipts\n%s", j.Summary(), j.Receipts, why)
		}
		n.unblamed(t, b)
	})
}
