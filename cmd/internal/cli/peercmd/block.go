package peercmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/block"
)

func newBlock(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "block",
		Short: "Manage the list of blocked peers",
		Long: `The block list takes effect at once and survives a restart. A blocked provider receives no orders and its
quotes are ignored, as ` + "`starling why`" + ` shows. A blocked buyer gets no leases. Running leases continue. To
refuse connections too, list the peer under block in config.yaml.`,
	}, newBlockAdd(a), newBlockRm(a), newBlockLs(a))
}

func newBlockAdd(a *cli.App) *cobra.Command {
	var reason string
	var roles []string
	c := &cobra.Command{
		Use:   "add PEER",
		Short: "Block a peer by its key or peer id",
		Example: `  starling peer block add 7xKX…gAsU --reason "lost three jobs"
  starling peer block add 12D3KooW… --as provider`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := a.PeerKey(c.Context(), args[0])
			if err != nil {
				return err
			}
			e := block.Entry{Peer: p, Reason: reason}
			for _, r := range roles {
				e.Roles = append(e.Roles, block.Role(r))
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			if e, err = api.AddBlock.Call(c.Context(), client, api.Block{Peer: e.Peer.String(), Body: e}); err != nil {
				return err
			}
			if a.Output != cli.OutputTable {
				return a.Show(e, nil)
			}
			a.Say("%s is blocked; undo it with `starling peer block rm %[1]s`", e.Peer)
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, for your own notes")
	c.Flags().StringSliceVar(&roles, "as", []string{string(block.Buyer), string(block.Provider)},
		"role: provider, buyer")
	return c
}

func newBlockRm(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "rm PEER",
		Short:   "Unblock a peer",
		Example: `  starling peer block rm 7xKX…gAsU`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := a.PeerKey(c.Context(), args[0])
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			return api.RemoveBlock.Send(c.Context(), client, api.ByPeer{Peer: p.String()})
		},
	}
}

func newBlockLs(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:     "ls",
		Short:   "List the blocked peers",
		Example: `  starling peer block ls`,
	}, 0, cli.Get(api.ListBlocks), func(t *cli.Table, _ cli.Peer, list []block.Entry) {
		t.Head("PEER", "AS", "AGE", "REASON")
		for _, e := range list {
			t.Row(e.Peer, strings.Trim(fmt.Sprint(e.Roles), "[]"), cli.Ago(time.Now(), e.At), e.Reason)
		}
	})
}
