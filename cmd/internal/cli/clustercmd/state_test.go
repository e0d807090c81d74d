package clustercmd

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/buyer"
)

// The state of a cluster is one phrase from its members and its engine, and it is the cluster's end once that is known.
func TestClusterState(t *testing.T) {
	t.Parallel()
	up := buyer.Rank{State: buyer.RankRunning}
	up.Live.Phase = "running"
	pulling := buyer.Rank{State: buyer.RankRunning}
	pulling.Live.Phase = "pulling"
	engine := &buyer.Cluster{Ready: time.Unix(1, 0)}
	for want, j := range map[string]buyer.Job{
		"matching":              {State: buyer.Matching},
		"starting, 0 of 2 run":  {State: buyer.Running, Ranks: []buyer.Rank{pulling, {State: buyer.RankWaiting}}},
		"starting, 1 of 2 run":  {State: buyer.Running, Ranks: []buyer.Rank{up, pulling}, Cluster: &buyer.Cluster{}},
		"starting":              {State: buyer.Running, Ranks: []buyer.Rank{up, up}, Cluster: &buyer.Cluster{}},
		"ready, 1 of 2 run":     {State: buyer.Running, Ranks: []buyer.Rank{up, pulling}, Cluster: engine},
		"ready":                 {State: buyer.Running, Ranks: []buyer.Rank{up, up}, Cluster: engine},
		"paused":                {State: buyer.Running, Ranks: []buyer.Rank{up, up}, Cluster: engine, Paused: true},
		"going down":            {State: buyer.Running, Ranks: []buyer.Rank{up, up}, Cluster: engine, Paused: true, Stopping: true},
		"settling, then failed": {State: buyer.Settling, Outcome: buyer.Failed, Stopping: true},
		string(buyer.Succeeded): {State: buyer.Succeeded, Stopping: true, Paused: true},
	} {
		if got := clusterState(j); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A command for a running cluster is refused from the moment at which it is stopped, with its reason and its logs.
func TestGoing(t *testing.T) {
	t.Parallel()
	if err := going(buyer.Job{State: buyer.Running}); err != nil {
		t.Errorf("a running cluster: %v", err)
	}
	for name, j := range map[string]buyer.Job{
		"stopping": {State: buyer.Running, Stopping: true}, "settling": {State: buyer.Settling},
		"ended": {State: buyer.Failed, Reason: "the head was lost"},
	} {
		j.ID, j.Spec.Name = "j1", "sweep"
		e := cli.Explain(going(j))
		want := "cluster sweep has ended"
		if j.Reason != "" {
			want += ": " + j.Reason
		}
		if e.Code != cli.ExitUsage || e.Err.Error() != want || !strings.Contains(e.Hint, "starling cluster logs j1") {
			t.Errorf("%s: code %d, %q, hint %q", name, e.Code, e.Err, e.Hint)
		}
	}
}

// The price of an hour has the network's currency; a cluster that has no lease yet has none.
func TestHourly(t *testing.T) {
	t.Parallel()
	if got := hourly(clitest.Network, clusterInfo{}); got != "-" {
		t.Errorf("without a lease: %q", got)
	}
	if got := hourly(clitest.Network, clusterInfo{Hourly: 1_250_000}); got != "1.25 STAR" {
		t.Errorf("got %q", got)
	}
}
