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
		Long: `Starts 19 selling peers and a buying one with a local Solana and measures the time from an order to
leases signed by both sides, asking known peers directly and by gossip alone, then what the peers cost while nothing
happens. The same orders are placed in a simulated network with round trips of 2 and 50 ms, and matching and receipts
are measured on one core. The network of a cluster is compared with a bare one, the start of containers with that of
the bare engine, and the rise of a cluster of eight members with Ray with` + "`ray start`" + ` in eight plain
containers: those need root, and are skipped without.
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
					return cli.Usagef("--only: %q is no part of the benchmark; the parts are %s", part,
						strings.Join(bench.Parts, ", "))
				}
			}
			o.Out = a.Out
			return bench.Run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Dir, "out", filepath.Join("testnet", "out"),
		"directory for everything that the benchmark writes")
	c.Flags().StringVar(&o.RPC, "solana-rpc", "", "use the local validator at this URL instead of starting one")
	c.Flags().IntVar(&o.Samples, "samples", bench.Samples, "orders on each route")
	c.Flags().StringSliceVar(&o.Only, "only", nil, "measure these parts alone: "+strings.Join(bench.Parts, ", "))
	c.Flags().BoolVar(&o.ReportOnly, "report-only", false, "succeed also when a target is missed")
	return c
}
