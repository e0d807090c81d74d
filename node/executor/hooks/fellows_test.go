package hooks_test

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// Fellows may read a program's files while it runs, also in the next process, and not after its end.
func TestFellows(t *testing.T) {
	t.Parallel()
	one, two := testKey.Key(), executortest.Owner.Key()
	r := newRig(t, map[string]guest.Program{"wait": executortest.Wait})
	w := &nodepb.Workload{Runtime: "wasm", Module: r.Module("wait"), Fellows: [][]byte{one[:], two[:]}}
	e := r.Must(market.LeaseID{1}, 1, w)
	r.Running(e)
	if n := r.Files.Joined(); n != 2 {
		t.Errorf("%d rights while it runs, want 2", n)
	}
	r.End(market.LeaseID{1}, 0)
	r.Await(e)
	if n := r.Files.Joined(); n != 0 {
		t.Errorf("%d rights after the end", n)
	}
	alone := r.Must(market.LeaseID{2}, 1, &nodepb.Workload{Runtime: "wasm", Module: w.Module})
	r.Running(alone)
	if n := r.Files.Joined(); n != 0 {
		t.Errorf("%d rights without fellows", n)
	}
	r.End(market.LeaseID{2}, 0)
}
