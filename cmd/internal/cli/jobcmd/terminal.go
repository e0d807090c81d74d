package jobcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

const terminalLong = `With -it IMAGE the container waits, and a terminal is opened on its command beside: COMMAND
after IMAGE, else the image's own, with the image's entrypoint. The job is stopped when the command ends, and the exit
code is that of the command. Ctrl-P Ctrl-Q, a closed terminal or a broken connection end the command and leave the
job: come back with starling ssh JOB, end it with starling stop JOB. Unused for 30 minutes it stops by itself (--idle,
0s for never). An interrupt before the terminal opens stops the job. With -d only the container is started.

--idle stops a job that is not used: no connection through exec, ssh or port-forward is open, and its programs compute
less than a third of a processor. The peer that it was submitted to watches this.`

// runArgs checks the arguments of run.
func runArgs(c *cobra.Command, args []string, flags *jobfile.Flags) error {
	switch at := c.ArgsLenAtDash(); {
	case len(args) == 0 || at == 0:
		return cli.WithHint(cli.Usagef("run needs a module"), "%s", c.UseLine())
	case (at < 0 && len(args) > 1 || at > 1) && !terminal(flags):
		return cli.WithHint(cli.Usagef("run does not take %q", args[1]),
			"arguments of the program come after --: starling run %s -- %s", args[0], args[1])
	}
	return nil
}

// Attend waits until a job runs, serves its user at this terminal, and stops the job.
type Attend func(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) error

// defaultIdle is --idle of jobs that serve a user.
const defaultIdle = 30 * time.Minute

// Attended returns a job that serves a user and stops when it is unused, unless the flags have another idle time.
func Attended(spec job.Job, c *cobra.Command) job.Job {
	if !c.Flags().Changed("idle") && spec.Guardians == 0 {
		spec.Idle = job.Span(defaultIdle)
	}
	return spec
}

// terminal reports whether the flags have -it.
func terminal(f *jobfile.Flags) bool {
	_, given := f.Terminal()
	return given
}

// kept returns the job of run -it: its program waits for its user.
func kept(spec job.Job, o SubmitOptions) (job.Job, error) {
	switch {
	case o.save != "":
		return spec, cli.WithHint(cli.Usagef("--save needs a program that ends by itself, -it has none"),
			"starling cp JOB:/out/FILE . copies a file while the job runs")
	case o.Detach && len(spec.Args) > 0:
		return spec, cli.WithHint(cli.Usagef("-d with -it starts no command: the container waits"),
			"without a command, then starling ssh JOB")
	}
	return job.Kept(spec)
}

// Watch shows the progress of a job until over, and returns its last state.
func Watch(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job,
	over func(record.Job) bool) (record.Job, error) {
	p := a.Progress()
	defer p.Clear()
	w := watch{p: p, g: g, over: over, last: j, began: time.Now()}
	err := w.run(ctx, c)
	return w.job(), err
}
