// Command cmd measures the GPU of this machine, prints the observations, and writes a report. See package hardware.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/starling-network/starling/testnet/hardware"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	var cfg hardware.Config
	flag.StringVar(&cfg.UUID, "uuid", "", "the GPU or MIG slice (default the first sellable one)")
	flag.BoolVar(&cfg.Small, "small", false, "use sizes that the PTX interpreter runs in seconds")
	flag.StringVar(&cfg.Out, "out", "testnet/out/gpu.json", "the report")
	flag.StringVar(&cfg.Benchmarks, "benchmarks", "", "file with the table of measured cards, to add a row")
	scenarios.Main("gpu", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		cfg.Dir, cfg.Starling, cfg.Say = o.Dir, o.Binary, o.Say
		rows, err := hardware.Run(ctx, cfg)
		if err == nil {
			fmt.Println("\nthe report is", cfg.Out)
		}
		return rows, err
	})
}
