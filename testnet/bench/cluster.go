package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ClusterReport is how long a cluster takes to come up, beside the same engine in plain containers of the same machine.
type ClusterReport struct {
	Engine  string `json:"engine"` // engine of the cluster
	Members int    `json:"members"`
	// Submitted is from the command that orders it until its engine sees all members, their image there: the order, the
	// leases, the measured paths, the network, the containers, the engine's own start.
	Submitted Spread `json:"submitted"`
	// Running is from the same until all programs were seen running: Starling's part.
	Running Spread `json:"running"`
	// Bare is from the start of as many plain containers, with the same commands, environment and limits, in turns with
	// the clusters.
	Bare Spread `json:"bare"`
	// Overhead is the difference of the medians of Submitted and Bare.
	Overhead float64 `json:"overhead"`
}

// benchClusters is how many clusters are brought up, and as many times plain containers.
const benchClusters = 3

// clusterStart measures how long eight members with Ray take: a benchmark does it, with a container engine, images and
// a network of its own. It needs root, TUN devices and packages; where they are not, it says so.
func (b *bench) clusterStart(ctx context.Context) error {
	b.say("a cluster of 8 members with Ray, beside `ray start` in plain containers, in turns")
	const name = "BenchmarkRay"
	out, err := goTest(ctx, []string{"STARLING_DOCKER=1", "STARLING_LOCALNET=1"}, "-v", "-run", "^$", "-bench",
		"^"+name+"$", "-benchtime", fmt.Sprintf("%dx", benchClusters), "-timeout", benchTime.String(),
		"./testnet/cluster/bench")
	if err != nil {
		return err
	}
	if why, ok := skipped(out, name); ok {
		b.say("   not measured: %s", why)
		return nil
	}
	found, err := parseBenchmarks(out)
	if err != nil {
		return err
	}
	r, err := clusterReport(found[name])
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.say("   %d members, %s: up after %.1f s, all programs run after %.1f s; plain containers %.1f s (medians of %d)",
		r.Members, r.Engine, r.Submitted.P50/1000, r.Running.P50/1000, r.Bare.P50/1000, benchClusters)
	b.report.Clusters = append(b.report.Clusters, r)
	return nil
}

func clusterReport(figures map[string]float64) (ClusterReport, error) {
	r := ClusterReport{Engine: "ray", Members: int(figures["members"]), Submitted: spreadIn(figures, "submitted"),
		Running: spreadIn(figures, "running"), Bare: spreadIn(figures, "bare")}
	if r.Members == 0 || slices.Contains([]float64{r.Submitted.P50, r.Running.P50, r.Bare.P50}, 0) {
		return r, errors.New("it reports no median")
	}
	r.Overhead = r.Submitted.P50 - r.Bare.P50
	return r, nil
}
