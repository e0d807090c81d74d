//go:build linux

// Command cmd runs the scenario of containers and prints what it sees, for a person to watch. It needs root.
package main

import (
	"github.com/starling-network/starling/testnet/engine/scenario"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() { scenarios.Main("containers", scenario.Run) }
