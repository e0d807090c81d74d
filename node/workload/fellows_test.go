package workload

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/blob"
)

// A buyer cannot have a provider connect to many peers, or to what is no peer.
func TestAttackManyFellows(t *testing.T) {
	t.Parallel()
	key := func(i byte) []byte { return append([]byte{i}, make([]byte, 31)...) }
	var many [][]byte
	for i := range byte(255) {
		if _, err := fellow(key(i)); err == nil {
			many = append(many, key(i))
		}
	}
	for name, test := range map[string]struct {
		w  *nodepb.Workload
		ok bool
	}{
		"none":       {&nodepb.Workload{}, true},
		"as allowed": {&nodepb.Workload{Fellows: many[:MaxFellows]}, true},
		"many":       {&nodepb.Workload{Fellows: many[:MaxFellows+1]}, false},
		"twice":      {&nodepb.Workload{Fellows: [][]byte{many[0], many[0]}}, false},
		"short":      {&nodepb.Workload{Fellows: [][]byte{many[0][:31]}}, false},
		"no key":     {&nodepb.Workload{Fellows: [][]byte{make([]byte, 32)}}, false},
		"replica":    {&nodepb.Workload{Fellows: many[:1], Seed: 1}, false},
	} {
		if err := checkFellows(test.w); (err == nil) != test.ok || err != nil && !errors.Is(err, ErrWorkload) {
			t.Errorf("%s: %v", name, err)
		}
		if test.ok && len(Fellows(test.w)) != len(test.w.Fellows) {
			t.Errorf("%s: %d fellows", name, len(Fellows(test.w)))
		}
	}
}

// Fellows read the files that all ranks have, and not a rank's own.
func TestCommon(t *testing.T) {
	t.Parallel()
	b := func(s string) *nodepb.Blob { return &nodepb.Blob{Cid: blob.Sum([]byte(s)).Bytes()} }
	w := &nodepb.Workload{
		Module: b("module"), ImageParts: []*nodepb.Blob{b("part")},
		Inputs: []*nodepb.Input{{Blob: b("all")}, {Blob: b("own"), Own: true}, {Blob: &nodepb.Blob{}}},
	}
	all := Common(w)
	if len(all) != 3 || all[0] != blob.Sum([]byte("module")) || all[1] != blob.Sum([]byte("part")) ||
		all[2] != blob.Sum([]byte("all")) {
		t.Errorf("common files %v", all)
	}
	if at := At("buyer", w, w.Module); len(at.Fellows) != 0 || at.Peer != "buyer" {
		t.Errorf("places %v", at)
	}
}
