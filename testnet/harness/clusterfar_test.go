package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// An engine that cannot live as far apart as the providers are gets none of them, and its user is told why in words; one that can has the
// paths that were measured kept with it.
func TestClusterFar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 3, Units: 1, RTT: 40 * time.Millisecond, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		far := b.Cluster(3, nil)
		far.Cluster = &job.Cluster{Engine: "mpi", Command: []string{"solve"}, Network: cluster.Metro}
		j := b.Wait(b.Submit(far).ID, 5*time.Minute)
		if j.State != buyer.Failed || j.Code != buyer.CodeNoMatch || !strings.HasPrefix(j.Reason, "engine mpi cannot live on a wan network, it needs metro") ||
			!strings.Contains(j.Reason, "40ms apart, a metro is under 15ms") || j.Network != nil {
			t.Errorf("%s %s %s", j.State, j.Code, j.Reason)
		}
		id := b.Submit(b.Cluster(3, nil)).ID
		j = b.joined(id, 3)
		paths, err := b.Buyer().Paths(t.Context(), id)
		if err != nil || len(paths) != 3 || j.Network == nil || j.Network.Class != cluster.WAN || j.Network.Paths != 3 || j.Network.RTTMicros < 40_000 || j.Network.RTTMicros > 60_000 {
			t.Errorf("%+v %+v %v", paths, j.Network, err)
		}
		n.takeDown(t, b, id)
		n.Settle()
	})
}
