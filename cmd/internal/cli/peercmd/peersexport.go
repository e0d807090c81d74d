package peercmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
)

func peersExport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export PEER|KEY FILE",
		Short: "Export the receipts of others behind a peer's reputation",
		Long: `Writes a JSON file with the network's genesis and, of each lease that others kept with the peer and
that this one counts, the last receipt, which both signed, and its place under the root that its buyer anchored.
Anyone can check it with receipts verify, without this peer. This peer's own leases are not in it: receipts export has
those. FILE may be - for standard output.`,
		Example: `  starling peer export 12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm facts.json
  starling receipts verify facts.json --rpc https://rpc.example`,
		Args: cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			name, err := a.PeerName(c.Context(), args[0])
			if err != nil {
				return err
			}
			f, err := api.GetFacts.Call(c.Context(), client, api.ByPeer{Peer: name})
			if err != nil {
				return err
			}
			if file, err := a.Export(args[1], f); err != nil || !file {
				return err
			}
			a.Say("wrote %s to %s", cli.Count(len(f.Receipts), "receipt"), args[1])
			return nil
		},
	}
}
