package programs

import (
	"slices"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	work "github.com/starling-network/starling/node/workload"
)

// Two providers name each other or neither names the other, within the bound.
func TestFellows(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 5, 8, 9, 10, 40} {
		var j record.Job
		for i := range n {
			j.Ranks = append(j.Ranks, record.Rank{Provider: sign.Key{byte(i + 1)}, State: record.RankLeased})
		}
		names := func(a, b int) bool {
			return slices.ContainsFunc(fellows(j, a), func(k []byte) bool { return k[0] == byte(b+1) })
		}
		for a := range n {
			if got, want := len(fellows(j, a)), min(n-1, work.MaxFellows); got != want {
				t.Errorf("rank %d of %d has %d fellows, want %d", a, n, got, want)
			}
			for b := range n {
				if names(a, b) != names(b, a) || names(a, a) {
					t.Errorf("%d ranks: %d names %d: %v, the other way: %v", n, a, b, names(a, b), names(b, a))
				}
			}
		}
	}
}

// Ranks on one provider, ranks without one, and ranks whose results are compared have no fellows.
func TestNoFellows(t *testing.T) {
	t.Parallel()
	a, b := sign.Key{1}, sign.Key{2}
	ranks := []record.Rank{
		{Provider: a, State: record.RankLeased}, {Provider: a, State: record.RankRunning},
		{Provider: b, State: record.RankWaiting}, {State: record.RankLeased},
	}
	j := record.Job{Ranks: ranks}
	if keys := fellows(j, 0); len(keys) > 0 {
		t.Errorf("fellows %x", keys)
	}
	ranks[2].State = record.RankRunning
	if keys := fellows(j, 0); len(keys) != 1 || keys[0][0] != 2 {
		t.Errorf("fellows %x, want the other provider", keys)
	}
	j.Spec.Verify = job.VerifyReplicate
	if keys := fellows(j, 0); len(keys) > 0 {
		t.Errorf("of replicas: %x", keys)
	}
}
