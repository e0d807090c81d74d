package harness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Where the others only wait for what the head serves, its program begins first, and soon theirs.
func TestClusterHeadFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		spec := b.Cluster(3, quiet)
		spec.Cluster = &job.Cluster{Engine: "dask", Network: cluster.WAN}
		id := b.Submit(spec).ID
		j := b.joined(id, 3)
		steps, _, err := b.Buyer().Trace(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		var began []int
		for _, s := range steps {
			if s.Kind == record.StepStarted {
				began = append(began, *s.Rank)
			}
		}
		if len(began) != 3 || began[0] != 0 {
			t.Errorf("the ranks began in the order %v", began)
		}
		if head, last := j.Ranks[0].Begun, j.Ranks[2].Begun; !head.Before(last) || last.Sub(head) > 2*time.Second {
			t.Errorf("the head was started at %v, rank 2 at %v", head, last)
		}
		if err := b.Buyer().Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		n.check(t, b, b.Wait(id, 5*time.Minute), buyer.Stopped)
		n.Settle()
	})
}
