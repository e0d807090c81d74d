package record

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// What a provider says of the ways of a member becomes no more than a few numbers, whatever it says.
func TestWays(t *testing.T) {
	t.Parallel()
	link := func(rank uint32, path nodepb.LinkPath, micros uint64) *nodepb.Link {
		return &nodepb.Link{Rank: rank, Path: path, RttMicros: micros, Mtu: 1420}
	}
	w := WaysOf(&nodepb.Execution{PlanVersion: 3, Links: []*nodepb.Link{
		link(0, nodepb.LinkPath_LINK_PATH_RELAYED, 41_500), link(1, nodepb.LinkPath_LINK_PATH_DIRECT, 7),
		link(3, nodepb.LinkPath_LINK_PATH_UNSPECIFIED, 0), link(4, 99, 0),
	}})
	if b, err := json.Marshal(w); err != nil || string(b) != `{"plan":3,"head":{"path":"relayed","rttMillis":41.5,"mtu":1420},"direct":1,"relayed":1,"cut":2}` {
		t.Errorf("%s, %v", b, err)
	}
	if far := WaysOf(&nodepb.Execution{PlanVersion: 1, Links: []*nodepb.Link{{RttMicros: math.MaxUint64, Mtu: math.MaxUint32}}}); far.Head.RTTMillis != 60_000 || far.Head.MTU != 1<<16 {
		t.Errorf("%+v", far.Head)
	}
	if WaysOf(&nodepb.Execution{}) != nil || WaysOf(&nodepb.Execution{PlanVersion: 1, Links: make([]*nodepb.Link, cluster.MaxMembers+1)}) != nil {
		t.Error("no cluster's member has ways")
	}
}

func TestWaysEqual(t *testing.T) {
	t.Parallel()
	of := func(rtt float64) *Ways {
		return &Ways{Plan: 1, Direct: 1, Head: &Way{Path: PathDirect, RTTMillis: rtt, MTU: 1280}}
	}
	if !of(10).Equal(of(14)) || !of(0).Equal(of(0)) || of(10).Equal(of(16)) || of(0).Equal(of(1)) || of(1).Equal(nil) || (*Ways)(nil).Equal(of(1)) {
		t.Error("a change of a time that matters")
	}
	if !(*Ways)(nil).Equal(nil) || !(&Ways{Plan: 1}).Equal(&Ways{Plan: 1}) || (&Ways{Plan: 1}).Equal(&Ways{Plan: 2}) || (&Ways{Plan: 1}).Equal(of(1)) {
		t.Error("a change of the plan")
	}
	relayed := of(10)
	relayed.Head.Path = PathRelayed
	if of(10).Equal(relayed) {
		t.Error("a change of the path")
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		paths []cluster.Path
		want  string
	}{
		{nil, "0 paths, the longest round trip 0s: a lan"},
		{[]cluster.Path{{RTTMicros: 300, Mbit: 5000}, {RTTMicros: 912}}, "2 paths, the longest round trip 910µs, the least rate seen 5000 Mbit/s: a lan"},
		{[]cluster.Path{{RTTMicros: 300, Mbit: 499}, {RTTMicros: 912}}, "2 paths, the longest round trip 910µs, the least rate seen 499 Mbit/s: a metro"},
		{[]cluster.Path{{RTTMicros: 14_999}, {RTTMicros: 300, Relayed: true}}, "2 paths, the longest round trip 15ms, 1 over relays: a wan"},
		{[]cluster.Path{{RTTMicros: 300, Mbit: 49}, {RTTMicros: 12_000, Mbit: 400}}, "2 paths, the longest round trip 12ms, the least rate seen 49 Mbit/s: a wan"},
	} {
		if got := SpanOf(c.paths).String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
