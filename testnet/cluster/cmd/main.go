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
		"ray", "engines, separated by commas: ray, ray-all (with stopped engines), torchrun, mpi, dask")
	scenarios.Main("cluster", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		return scenario.Run(ctx, o, strings.Split(*engine, ",")...)
	})
}
