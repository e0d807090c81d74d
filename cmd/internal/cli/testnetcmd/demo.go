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
		Long: `Starts five selling peers and a buying one with a local Solana, orders five workers, trains a small
language model on the source text of the Go installation on this machine, kills one provider in the middle, and pays
every provider what its vouchers say. Everything is written to DIR/demo.json. Run it from a checkout of the source: it
compiles the job.`,
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
		"directory for everything that the demonstration writes")
	c.Flags().StringVar(rpc, "solana-rpc", "", "use the local validator at this URL instead of starting one")
}

func testnetSlash(a *cli.App) *cobra.Command {
	var o drill.Options
	c := &cobra.Command{
		Use:   "slash",
		Short: "Watch a provider sell one unit twice and lose its stake",
		Long: `Starts a local Solana with Starling's program and five peer processes: one provider that runs twice
under one key, two buyers of whom each reaches only one of the two, and a third peer. The provider puts up stake and
sells its only unit to both buyers at once. Both sides of every lease publish its receipts in the DHT, so the two
sales meet there: the third peer, which traded with nobody, finds them and submits them, and the program takes the
stake. At least half of it burns, the buyers get back what they paid, and the third peer gets a share for its trouble.

The commands that do this are shown as they run; a real network is watched and defended with the same ones. The proof
is left in DIR/double-sale.json, where starling proof check reads it, and the figures in DIR/slash.json. The exit
code is 0 only if the whole stake is gone and both buyers are made whole.`,
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
is no part of the network, hands in a job with -d by way of one peer: three peers guard it. Then the client is killed,
the peer that it entered by, the guardian that supervises the job then, and one of the providers. Those who are left
take a standby for the lost rank and bring the job to its end; two of three guardians sign for what is worked. The
laptop comes back by another peer, and finds the result and the rest of its money.

The commands of the laptop are shown as they run. The figures are left in DIR/detach.json. The exit code is 0 only if
the result is there and the laptop's wallet lost exactly what was claimed. Run it from a checkout of the source: it
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
