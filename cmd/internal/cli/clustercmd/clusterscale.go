package clustercmd

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/cluster"
)

func newClusterScale(a *cli.App) *cobra.Command {
	var budget string
	c := &cobra.Command{
		Use:   "scale NAME SIZE",
		Short: "Change the number of members of a running cluster",
		Long: `Leases more members, all or none and near to the present ones, which join the running cluster; or ends
the members of the highest ranks. The head stays.

A budget that equals the highest possible cost changes with the size. A budget that was set lower stays, and pays the
new members for as long as it lasts. --budget sets another budget for the whole cluster; if the new members cannot be
leased, size and budget stay. With the present size, --budget only changes the budget. The cost is also bounded by
buy.limits in config.yaml and by the wallet. An engine that counts its nodes at its start is refused: mpi, and torchrun
beyond its options minNodes and maxNodes.`,
		Example: `  starling cluster scale sweep 16
  starling cluster scale sweep 16 --budget 12
  starling cluster scale sweep 2`,
		Args: cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			size, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || size < 1 || size > cluster.MaxMembers {
				return cli.WithHint(cli.Usagef("%q is not a size from 1 to %d", args[1], cluster.MaxMembers),
					"starling cluster down %s ends the cluster", args[0])
			}
			client, j, err := openCluster(a, ctx, args[0])
			if err != nil {
				return err
			}
			req := api.ScaleRequest{Size: uint32(size)}
			if c.Flags().Changed("budget") {
				g, err := a.Genesis()
				if err != nil {
					return err
				}
				if req.Budget, err = cli.Amount("--budget", budget, g); err != nil {
					return err
				}
			}
			was := len(j.Ranks)
			done := waiting(a, "cluster %s: from %d to %d members", j.Spec.Name, was, size)
			j, err = api.ScaleCluster.Call(ctx, client, api.Scale{ID: j.ID, Body: req})
			done()
			switch {
			case ctx.Err() != nil:
				return &cli.Error{Code: cli.ExitInterrupted, Err: errors.New("interrupted; the peer continues scaling"),
					Hint: "starling cluster status " + args[0]}
			case err != nil:
				return fmt.Errorf("scaling cluster %s: %w", args[0], err)
			}
			return a.Show(j, func(t *cli.Table) {
				t.Row(fmt.Sprintf("cluster %s: from %d to %d members", j.Spec.Name, was, len(j.Ranks)))
			})
		},
	}
	c.Flags().StringVar(&budget, "budget", "", "new budget for the whole cluster, in tokens")
	return c
}

// waiting shows the awaited event and the elapsed time, until the returned function is called.
func waiting(a *cli.App, format string, args ...any) (done func()) {
	p, began, over := a.Progress(), time.Now(), make(chan struct{})
	text := fmt.Sprintf(format, args...)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			p.Status("%s, %s", text, time.Since(began).Round(time.Second))
			select {
			case <-over:
				p.Clear()
				return
			case <-t.C:
			}
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}
