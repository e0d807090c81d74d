//go:build linux

// Command natlab runs the scenario of peers behind NATs and prints its observations. It needs root.
package main

import (
	"github.com/starling-network/starling/testnet/natlab/scenario"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() { scenarios.Main("nat", scenario.Run) }
