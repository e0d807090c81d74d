package testnetcmd

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/testnet/demo"
	"github.com/starling-network/starling/testnet/drill"
)

func testnetDemo(a *cli.App) *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch five peers train a model for a sixth and get paid",
		Long: `Starts five selling peers and a buying one with a local Solana and orders five workers. They train a
small language model on the source text of the Go installation on this machine. One provider is killed in the middle,
and every provider is paid according to its vouchers. The figures are written to DIR/demo.json. Run it from a checkout
of the source: it compiles the job.`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = a.Out
			return demo.Run(c.Context(), o)
		},
	}
	outputFlags(c, &o.Dir, &o.RPC)
	return c
}

func outputFlags(c *cobra.Command, dir, rpc *string) {
	c.Flags().StringVar(dir, "out", filepath.Join("testnet", "out"),
		"directory for the files of the demonstration")
	c.Flags().StringVar(rpc, "solana-rpc", "", "use the local validator at this URL instead of starting one")
}

func testnetSlash(a *cli.App) *cobra.Command {
	var o drill.Options
	c := &cobra.Command{
		Use:   "slash",
		Short: "Watch a provider sell one unit twice and lose its stake",
		Long: `Starts a local Solana with Starling's program and five peer processes: one provider that runs twice
under one key, two buyers that each reach only one of the two, and a third peer. The provider stakes, and sells its only
unit to both buyers at once. Both sides of every lease publish its receipts in the DHT, so the two sales meet there. The
third peer, which traded with none of them, finds and submits the receipts, and the program slashes the stake. At least
half of it burns, the buyers are refunded, and the third peer gets a share.

The commands are shown as they run; the same commands watch and defend a real network. The proof is in
DIR/double-sale.json, for starling proof check, and the figures are in DIR/slash.json. The exit code is 0 only if the
whole stake is slashed and both buyers are refunded.`,
		Example: `  starling testnet slash
  starling proof check testnet/out/double-sale.json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = a.Out
			return drill.Slash(c.Context(), o)
		},
	}
	outputFlags(c, &o.Dir, &o.RPC)
	return c
}

func testnetDetach(a *cli.App) *cobra.Command {
	var o drill.Options
	c := &cobra.Command{
		Use:   "detach",
		Short: "Watch a job outlive its laptop, entry, guardian, provider",
		Long: `Starts a local Solana with Starling's program and eleven peer processes. A light client, a laptop that
is no part of the network, submits a job with -d through one peer: three peers guard it. Then these are killed: the
client, its entry peer, the guardian that supervises the job at that time, and one of the providers. The remaining
guardians replace the lost rank with a standby and complete the job; two of three guardians sign for the finished work.
The laptop returns through another peer, and gets the result and the rest of its deposit.

The commands of the laptop are shown as they run. The figures are in DIR/detach.json. The exit code is 0 only if the
result is there and the laptop's wallet paid exactly the claimed amount. Run it from a checkout of the source: it
compiles the job.`,
		Example: `  starling testnet detach`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = a.Out
			return drill.Detach(c.Context(), o)
		},
	}
	outputFlags(c, &o.Dir, &o.RPC)
	return c
}
