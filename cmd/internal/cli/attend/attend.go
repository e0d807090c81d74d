// Package attend has jobs that serve their user for as long as a command runs: a terminal of run -it, a notebook.
package attend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// Session opens a terminal on the command of a keeper's container. left reports that the command did not end by itself:
// its user left it, or the connection broke off.
type Session func(a *cli.App, ctx context.Context, c *api.Client, j record.Job) (left bool, err error)

// stopPatience is how long the end of a job that was stopped is awaited.
const stopPatience = 30 * time.Second

// Terminal returns a function that waits until a keeper runs, opens a terminal, and stops the job when its command has
// ended.
func Terminal(open Session) jobcmd.Attend {
	return func(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) error {
		j, err := await(a, ctx, c, g, j)
		if err != nil {
			return err
		}
		left, err := open(a, ctx, c, j)
		if left {
			a.Say("job %s runs on and is paid for until it is stopped: `starling ssh %[1]s` opens a shell in it, "+
				"`starling stop %[1]s` ends it", j.ID)
			return err
		}
		end(a, ctx, c, g, j)
		return err
	}
}

// end stops a job, also after the end of ctx, and shows its outcome.
func end(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if err := api.StopJob.Send(ctx, c, api.ByID{ID: j.ID}); err != nil {
		a.Say("warning: job %s was not stopped, and is paid for until it is: %v", j.ID, err)
		return
	}
	_ = c.Events(ctx, j.ID, nil, func(now record.Job) {
		j = now
		if _, over := j.Result(); over {
			cancel()
		}
	})
	a.Say("%s", jobcmd.Summary(g, j))
}

// await shows the progress of a job until its program runs. An interrupt stops the job.
func await(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) (record.Job, error) {
	text := "job " + j.ID
	if !g.Free {
		text += ", at most " + g.FormatAmount(j.Spec.Payment.Budget)
	}
	if j.Spec.Idle > 0 {
		text += fmt.Sprintf(", stopped after %v without use", time.Duration(j.Spec.Idle))
	}
	a.Say("%s", text)
	j, err := jobcmd.Watch(a, ctx, c, g, j, func(j record.Job) bool { return runs(j) || over(j) })
	switch {
	case over(j):
		if err = cli.JobError(j); err == nil {
			err = errors.New(jobcmd.Summary(g, j))
		}
		return j, cli.WithHint(err, "starling why %s", j.ID)
	case ctx.Err() != nil:
		end(a, ctx, c, g, j)
		return j, &cli.Error{Code: cli.ExitInterrupted, Err: errors.New("interrupted")}
	case err != nil && !runs(j):
		return j, cli.WithHint(fmt.Errorf("following job %s: %w", j.ID, err), "starling logs -f %s", j.ID)
	}
	return j, nil
}

// runs reports whether the program of rank 0 runs.
func runs(j record.Job) bool { return j.Ranks[0].Runs() }

func over(j record.Job) bool {
	_, over := j.Result()
	return over
}
