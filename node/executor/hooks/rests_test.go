package hooks

import (
	"maps"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
)

// Whatever one buyer leaves, nothing of the others is forgotten for it, and of its own the largest goes first.
func TestAttackRetain(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	n := byte(0)
	of := func(buyer peer.ID, size int64) rest {
		n++
		return rest{id: market.LeaseID{n}, buyer: buyer, until: at.Add(time.Duration(n) * time.Second), size: size}
	}
	for name, c := range map[string]struct {
		all  []rest
		want []int // indexes of all
	}{
		"room for all":          {[]rest{of("a", 10), of("b", 10)}, nil},
		"one output of 21 GiB":  {[]rest{of("a", 5), of("a", 3), of("evil", 21)}, []int{2}},
		"many outputs":          {[]rest{of("a", 5), of("evil", 4), of("evil", 6), of("evil", 4), of("evil", 4), of("evil", 4)}, []int{2, 1}},
		"the largest of equals": {[]rest{of("a", 8), of("b", 8), of("evil", 2), of("evil", 8)}, []int{3}},
		"the oldest of equals":  {[]rest{of("a", 8), of("a", 8), of("a", 8)}, []int{0}},
		"a lease without files": {[]rest{of("a", 0), of("evil", 30)}, []int{1}},
	} {
		want := map[market.LeaseID]bool{}
		for _, i := range c.want {
			want[c.all[i].id] = true
		}
		if got := early(c.all, 20); !maps.Equal(got, want) {
			t.Errorf("%s: %v are forgotten, want %v", name, got, want)
		}
	}
}
