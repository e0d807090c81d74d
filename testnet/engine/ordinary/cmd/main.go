//go:build linux

// Command cmd runs the scenario of ordinary images, with -all also the slow images, and prints its observations. It
// needs root.
package main

import (
	"context"
	"os"
	"slices"

	"github.com/starling-network/starling/testnet/engine/ordinary"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	i := slices.Index(os.Args, "-all")
	if i > 0 {
		os.Args = slices.Delete(os.Args, i, i+1)
	}
	scenarios.Main("images", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		return ordinary.Run(ctx, o, i > 0)
	})
}
