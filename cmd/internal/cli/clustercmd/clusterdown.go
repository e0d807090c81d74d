package clustercmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
)

func newClusterDown(a *cli.App) *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "down NAME...",
		Short: "End clusters and pay their cost so far",
		Long: `Stops all members, returns the leases and pays for the metered time. Files on the members' disks are
deleted, except the outputs in the cluster file (starling get). Returns at once; --wait waits until the payment is
final.`,
		Example: `  starling cluster down sweep
  starling cluster down --wait sweep`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("down needs a cluster"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			ids := make([]string, len(args))
			for i, name := range args {
				j, err := findCluster(a, c.Context(), client, name)
				if err != nil {
					return err // before any of them is ended
				}
				ids[i] = j.ID
			}
			return jobcmd.Stop(a, c.Context(), client, ids, wait)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until they have ended and everything is paid")
	return c
}
