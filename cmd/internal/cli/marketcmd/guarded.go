package marketcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
)

func newGuarded(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "guarded",
		Short: "List the jobs of others that this peer guards",
		Long: `A job that was submitted with guardians (starling run -d) continues without its owner. Its guardians sign
its payments by majority, and one of them supervises it until its owner is back. The command lists the jobs that this
peer guards, and the supervisor of each. The section guard in config.yaml limits their number and sets the fee.`,
		Example: `  starling provider guarded
  starling provider guarded -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			jobs, err := api.ListGuarded.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(jobs, func(t *cli.Table) {
				t.Head("JOB", "OWNER", "GUARDIANS", "EPOCH", "SUPERVISED BY", "UNTIL")
				for _, j := range jobs {
					by := j.Supervisor.Short()
					switch {
					case j.Over:
						by = "none: job over"
					case j.Mine:
						by = "this peer"
					case j.Supervisor == j.Owner:
						by = "its owner"
					}
					t.Row(j.Job.Short(), j.Owner.Short(), fmt.Sprint(len(j.Guardians)), fmt.Sprint(j.Epoch), by,
						j.Until.Format(time.DateTime))
				}
				if len(jobs) == 0 {
					t.Row("none")
				}
			})
		},
	}
}
