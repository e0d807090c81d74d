//go:build linux

// Command hostile runs the scenario of an attacker among honest peers and prints its observations. It needs root.
package main

import (
	"context"

	"github.com/starling-network/starling/testnet/hostile"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	scenarios.Main("hostile", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		return hostile.Run(ctx, hostile.Options{Options: o})
	})
}
