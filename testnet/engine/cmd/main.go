//go:build linux

// Command cmd runs the scenario of containers, or with -tenants the scenario of hostile tenants, and prints its
// observations. It needs root.
package main

import (
	"os"
	"slices"

	"github.com/starling-network/starling/testnet/engine/scenario"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	if i := slices.Index(os.Args, "-tenants"); i > 0 {
		os.Args = slices.Delete(os.Args, i, i+1)
		scenarios.Main("tenants", scenario.RunTenants)
		return
	}
	scenarios.Main("containers", scenario.Run)
}
