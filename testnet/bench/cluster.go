package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ClusterReport is the start time of a cluster, beside the same engine in plain containers of the same machine.
type ClusterReport struct {
	Engine  string `json:"engine"` // engine of the cluster
	Members int    `json:"members"`
	// Submitted is the time from the order until the engine sees all members, with the images present: the order, the
	// leases, the measured paths, the network, the containers, the engine's own start.
	Submitted Spread `json:"submitted"`
	// Running is the time from the order until all programs are reported as running: Starling's part.
	Running Spread `json:"running"`
	// Bare is the start time of the same number of plain containers, with the same commands, environment and limits.
	// Its measurements alternate with those of Submitted.
	Bare Spread `json:"bare"`
	// Overhead is the difference of the medians of Submitted and Bare.
	Overhead float64 `json:"overhead"`
}

// benchClusters is the number of clusters, and of sets of plain containers.
const benchClusters = 3

// clusterStart measures the start of eight members with Ray, by a Go benchmark with its own container engine, images
// and network. It needs root, TUN devices and packages; without them it reports that the part is skipped.
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
		return r, errors.New("the benchmark reports no median")
	}
	r.Overhead = r.Submitted.P50 - r.Bare.P50
	return r, nil
}
