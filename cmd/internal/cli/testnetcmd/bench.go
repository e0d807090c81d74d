package testnetcmd

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/testnet/bench"
)

func testnetBench(a *cli.App) *cobra.Command {
	var o bench.Options
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure leases, clusters and idle peers on a local network",
		Long: `Starts 19 selling peers and a buying one with a local Solana. It measures the time from an order to
leases signed by both sides, with direct requests to known peers and by gossip alone, then the load of idle peers. It
places the same orders in a simulated network with round trips of 2 and 50 ms, and measures matching and receipts on one
core. It compares the network of a cluster with a bare one, the start of containers with that of the bare engine, and
the start of a cluster of eight members with Ray with` + "`ray start`" + ` in eight plain containers. These parts need
root, and are skipped without.
Everything is written to DIR/bench.json and printed beside the targets; a missed target is an error. Run it from a
checkout of the source: it runs Go benchmarks. It takes about a quarter of an hour; --only measures some parts alone.`,
		Example: `  starling testnet bench
  starling testnet bench --only cluster --out /tmp/bench
  starling testnet bench --only cores,network --report-only`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Samples < 1 {
				return cli.Usagef("--samples: %d is not at least 1", o.Samples)
			}
			for _, part := range o.Only {
				if !slices.Contains(bench.Parts, part) {
					return cli.Usagef("--only: %q is not a part of the benchmark; the parts are %s", part,
						strings.Join(bench.Parts, ", "))
				}
			}
			o.Out = a.Out
			return bench.Run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Dir, "out", filepath.Join("testnet", "out"),
		"directory for the files of the benchmark")
	c.Flags().StringVar(&o.RPC, "solana-rpc", "", "use the local validator at this URL instead of starting one")
	c.Flags().IntVar(&o.Samples, "samples", bench.Samples, "number of orders on each route")
	c.Flags().StringSliceVar(&o.Only, "only", nil, "measure only these parts: "+strings.Join(bench.Parts, ", "))
	c.Flags().BoolVar(&o.ReportOnly, "report-only", false, "succeed even if a target is missed")
	return c
}
