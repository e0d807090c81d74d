package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
)

// steps returns the steps of a kind in a job's trace.
func (p *Peer) steps(t *testing.T, id string, kind record.StepKind) []record.Step {
	t.Helper()
	all, _, err := p.Node.Buyer().Trace(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []record.Step
	for _, s := range all {
		if s.Kind == kind {
			out = append(out, s)
		}
	}
	return out
}

// Every order is published on the topic of its class. With direct asking off it is
// matched by gossip alone; with it on, providers are asked as well, and the trace
// shows by which way each quote came.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, gossipOnly := range []bool{false, true} {
		t.Run(map[bool]string{false: "both", true: "gossip only"}[gossipOnly], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := New(t, Options{Programs: programs, Log: Logger()})
				time.Sleep(5 * time.Second)
				b := n.Buyer(0)
				spec := b.Job("work", 3, "2")
				spec.Placement.GossipOnly = gossipOnly
				j := b.Wait(b.Submit(spec).ID, time.Minute)
				n.check(t, b, j, buyer.Succeeded)
				routes := map[string]int{}
				for _, s := range b.steps(t, j.ID, record.StepQuoted) {
					routes[s.Route]++
				}
				ordered := b.steps(t, j.ID, record.StepOrdered)
				if len(ordered) != 1 || strings.Contains(ordered[0].Detail, "not gossiped") {
					t.Errorf("the order was not published: %v", ordered)
				}
				if gossipOnly && routes[buyer.RouteGossip] < 3 {
					t.Errorf("%d quotes by gossip, want 3 at least\n%s", routes[buyer.RouteGossip], b.Why(j.ID))
				}
				asked := len(b.steps(t, j.ID, record.StepAsked))
				if gossipOnly && (asked > 0 || routes[buyer.RouteDirect] > 0) {
					t.Errorf("%d providers were asked directly", asked)
				}
				if !gossipOnly && routes[buyer.RouteDirect] < 3 {
					t.Errorf("%d direct quotes, want 3 at least\n%s", routes[buyer.RouteDirect], b.Why(j.ID))
				}
				for rank, r := range j.Ranks {
					if r.Route == "" || gossipOnly && r.Route != buyer.RouteGossip {
						t.Errorf("rank %d came by %q", rank, r.Route)
					}
				}
			})
		})
	}
}

// With a provider that only the DHT knows of, the direct way finds it.
func TestRouteByDiscovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Programs: programs})
		time.Sleep(3 * time.Second)
		offers := n.Buyer(0).Node.Buyer().Exchange().Offers(t.Context(), "cpu")
		if len(offers) != 3 {
			t.Fatalf("%d offers can be found, want 3", len(offers))
		}
		for _, o := range offers {
			if !o.Fresh(time.Now()) || o.RTT <= 0 {
				t.Errorf("offer of %s: not probed (round trip %v)", o.Offer.Provider.Short(), o.RTT)
			}
		}
	})
}
