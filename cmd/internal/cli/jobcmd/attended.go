package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// Session opens a terminal on the command of a keeper's container. left reports that the command did not end by itself:
// its user left it, or the connection broke off.
type Session func(a *cli.App, ctx context.Context, c *api.Client, j record.Job) (left bool, err error)

// stopPatience is how long the end of a job that was stopped is awaited.
const stopPatience = 30 * time.Second

// terminal reports whether the flags have -it.
func terminal(f *jobfile.Flags) bool {
	_, given := f.Terminal()
	return given
}

// kept returns the job of run -it: its program waits for its user.
func kept(spec job.Job, o *SubmitOptions) (job.Job, error) {
	switch {
	case o.save != "":
		return spec, cli.WithHint(cli.Usagef("--save needs a program that ends by itself, -it has none"),
			"starling cp JOB:/out/FILE . copies a file while the job runs")
	case o.Detach && len(spec.Args) > 0:
		return spec, cli.WithHint(cli.Usagef("-d with -it starts no command: the container waits"),
			"without a command, then starling ssh JOB")
	}
	o.guards = true // a guardian has no user at a terminal
	return spec.Kept()
}

// attend waits until a keeper runs, opens the terminal, and stops the job when its command has ended.
func attend(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job, open Session) error {
	stop := func() {
		quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		if err := api.StopJob.Send(quiet, c, api.ByID{ID: j.ID}); err != nil {
			a.Say("warning: job %s was not stopped, and is paid for until it is: %v", j.ID, err)
			return
		}
		_ = c.Events(quiet, j.ID, nil, func(now record.Job) {
			if j = now; untils["result"](j) {
				cancel()
			}
		})
	}
	j, err := awaitKeeper(a, ctx, c, g, j)
	if ctx.Err() != nil {
		stop()
		return &cli.Error{Code: cli.ExitInterrupted, Err: fmt.Errorf("interrupted; job %s was stopped", j.ID)}
	}
	if err != nil {
		return err
	}
	left, err := open(a, ctx, c, j)
	if left {
		a.Say("job %s runs on and is paid for until it is stopped: `starling ssh %[1]s` opens a shell in it, "+
			"`starling stop %[1]s` ends it", j.ID)
		return err
	}
	stop()
	a.Say("%s", Summary(g, j))
	return err
}

// awaitKeeper shows the progress of a job until its program runs.
func awaitKeeper(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) (record.Job, error) {
	p := a.Progress()
	defer p.Clear()
	text := "job " + j.ID
	if !g.Free {
		text += ", at most " + g.FormatAmount(j.Spec.Payment.Budget)
	}
	p.Say("%s", text)
	runs := func(j record.Job) bool {
		_, over := j.Result()
		return over || j.Ranks[0].State == record.RankRunning && j.Ranks[0].Live.Phase == "running"
	}
	w := watch{p: p, g: g, over: runs, last: j, began: time.Now()}
	err := w.run(ctx, c)
	j = w.job()
	if _, over := j.Result(); over {
		err = errors.New(Summary(g, j))
		if failed := cli.JobError(j); failed != nil {
			err = failed
		}
		return j, cli.WithHint(err, "starling why %s", j.ID)
	}
	if err != nil && !runs(j) {
		return j, cli.WithHint(fmt.Errorf("following job %s: %w", j.ID, err), "starling logs -f %s", j.ID)
	}
	return j, nil
}
