package livecmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/checkpointcmd"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/copiescmd"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/buyer/record"
)

// Control makes the commands below `starling job` that control a running job.
func Control(a *cli.App) []*cobra.Command {
	return []*cobra.Command{newExtend(a), newPause(a), newResume(a), newPortForward(a), newProbe(a),
		checkpointcmd.New(a, sources.Download), copiescmd.New(a, sources.Download)}
}

func newPause(a *cli.App) *cobra.Command {
	c := pauseCommand(a, "paused", api.PauseJob)
	c.Use, c.Short = "pause ID...", "Freeze a job's programs"
	c.Long = `Freezes the programs of all ranks until resume, and programs that start meanwhile. They keep their memory
and units, so a paused job is metered and paid for like any other, and timeouts.run continues. Stopping a paused job
resumes its programs first, so that they can save their work.`
	c.Example = `  starling job pause jk3v5q2a
  starling job resume jk3v5q2a`
	return c
}

func newResume(a *cli.App) *cobra.Command {
	c := pauseCommand(a, "running", api.ResumeJob)
	c.Use, c.Short = "resume ID...", "Resume a paused job"
	c.Long = `Resumes the frozen programs of a paused job.`
	c.Example = `  starling job resume jk3v5q2a`
	return c
}

func pauseCommand(a *cli.App, done string, do route.Route[api.ByID, record.Job]) *cobra.Command {
	return &cobra.Command{
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("%s needs an id", c.Name()), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			jobs := []record.Job{}
			for _, id := range args {
				j, err := do.Call(c.Context(), client, api.ByID{ID: id})
				if err != nil {
					return err
				}
				jobs = append(jobs, j)
			}
			return a.Show(jobs, func(t *cli.Table) {
				for _, j := range jobs {
					t.Row(j.ID, done)
				}
			})
		},
	}
}
