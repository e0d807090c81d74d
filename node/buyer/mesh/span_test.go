package mesh

import (
	"slices"
	"testing"

	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/store"
)

// Paths between members that stay are as they were told, those of a rank with a new provider are measured anew, and the
// journal gives back one job's.
func TestRenew(t *testing.T) {
	t.Parallel()
	path := func(a, b, rtt uint32) cluster.Path { return cluster.Path{A: a, B: b, RTTMicros: rtt} }
	old := []cluster.Path{path(0, 1, 100), path(0, 2, 200), path(1, 2, 300), path(0, 7, 400)}
	measured := []cluster.Path{path(1, 2, 9), path(0, 2, 8), path(0, 1, 7)}
	members := []Finalist{{Rank: 0}, {Rank: 1}, {Rank: 2}}
	got := Renew(old, measured, members, []gang.Seat{{Rank: 2}})
	if want := []cluster.Path{path(0, 1, 100), path(0, 2, 8), path(1, 2, 9)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	st := store.NewMemory()
	for job, paths := range map[string][]cluster.Path{"j1": got, "j12": old} {
		put, err := Records.Encode(job, paths)
		if err == nil {
			err = st.Write(t.Context(), put)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for job, want := range map[string][]cluster.Path{"j1": got, "j12": old, "j": nil} {
		if read, err := Paths(t.Context(), st, job); err != nil || !slices.Equal(read, want) {
			t.Errorf("job %s: %v, %v, want %v", job, read, err, want)
		}
	}
}
