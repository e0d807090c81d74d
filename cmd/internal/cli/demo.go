package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/testnet"
)

func testnetDemo(a *App) *cobra.Command {
	var o testnet.DemoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch five peers train a model for a sixth and get paid",
		Long: `Starts five selling peers and a buying one with a local Solana, orders five workers, trains a small language model on
the source text of the Go installation on this machine, kills one provider in the middle, and pays every provider what its
vouchers say. Everything is written to DIR/demo.json. Run it from a checkout of the source: it compiles the job.`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = a.Out
			return testnet.Demo(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Dir, "out", filepath.Join("testnet", "out"), "directory for everything that the demonstration writes")
	c.Flags().StringVar(&o.RPC, "solana-rpc", "", "use the local validator at this URL instead of starting one")
	return c
}
