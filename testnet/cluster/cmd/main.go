//go:build linux

// Command cmd runs a scenario of clusters and prints its observations, for a person to watch. It needs root.
package main

import (
	"context"
	"flag"
	"strings"

	"github.com/starling-network/starling/testnet/cluster/scenario"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	engine := flag.String("engine",
		"ray", "what the clusters run, with commas between: ray, ray-all (with engines that end), torchrun, mpi, dask")
	scenarios.Main("cluster", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		return scenario.Run(ctx, o, strings.Split(*engine, ",")...)
	})
}
