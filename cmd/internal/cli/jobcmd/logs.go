package jobcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// NewLogs makes the command `starling logs`.
func NewLogs(a *cli.App) *cobra.Command {
	return LogsCommand(a, &cobra.Command{
		Use:   "logs ID",
		Short: "Show a job's log",
		Long: `Writes the output of the job's programs: their standard output to standard output, the rest to standard
error. With several ranks each line begins with the rank. The output of a single rank is written unchanged, byte for
byte; on a terminal, control characters other than colours are shown as ^[. With -f it follows the job until the job
has ended; the exit code then is that of the job.

--tail shows the last lines of each rank. --since shows the lines that arrived at your peer in that second or later. It
takes a duration before now (90s, 36h, 7d), a UTC day (2006-01-02) or a time (2006-01-02T15:04:05Z). With both, --tail
counts the lines since then.

-t begins each line with the second of its arrival at your peer, in UTC. Lines written while your peer was away arrived
when it was back. The time is - if your peer has not recorded it.`,
		Example: `  starling logs jk3v5q2a
  starling logs -f --tail 20 jk3v5q2a
  starling logs -t --since 10m jk3v5q2a
  starling logs --rank 2 jk3v5q2a > rank2.txt`,
		GroupID: cli.GroupJobs,
	}, "job", "show one rank only", func(ctx context.Context, c *api.Client, id string) (record.Job, error) {
		return api.GetJob.Call(ctx, c, api.ByID{ID: id})
	})
}

// LogsCommand makes c write the logs of the job or cluster that find returns for c's argument.
func LogsCommand(a *cli.App, c *cobra.Command, what, one string, find func(context.Context, *api.Client,
	string) (record.Job, error)) *cobra.Command {
	q := api.Log{}
	var since string
	var tail int
	c.Args = cli.ExactArgs(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		if since != "" {
			at, err := cli.ParseSince("--since", since, time.Now())
			if err != nil {
				return err
			}
			q.Since = at
		}
		if c.Flags().Changed("tail") {
			if tail < 0 {
				return cli.Usagef("--tail: %d, want at least 0", tail)
			}
			q.Tail = &tail
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		j, err := find(ctx, client, args[0])
		if err != nil {
			return err
		}
		if c.Flags().Changed("rank") {
			if err := cli.CheckRank(j, q.Rank); err != nil {
				return err
			}
		}
		return logs(a, ctx, client, j, q)
	}
	f := c.Flags()
	f.BoolVarP(&q.Follow, "follow", "f", false, "follow the log until the "+what+" has ended")
	f.IntVar(&q.Rank, "rank", cli.AllRanks, one)
	f.StringVar(&since, "since", "", "show lines since `TIME`: 10m, 7d, 2006-01-02T15:04:05Z")
	f.BoolVarP(&q.Timestamps, "timestamps", "t", false, "begin each line with its time of arrival")
	f.IntVar(&tail, "tail", 0, "show only the last `N` lines of each rank")
	return c
}

// logs writes the part q of the log of one rank or of all ranks. With Follow it runs until the job has ended, and
// returns the job's error.
func logs(a *cli.App, ctx context.Context, client *api.Client, j record.Job, q api.Log) error {
	err := copyLogs(ctx, client, j, q, cli.Plain(a.Out), cli.Plain(a.Err))
	if !q.Follow {
		return err
	}
	if ctx.Err() != nil {
		a.Say("the job runs on. Come back with `starling logs -f %s`, end it with `starling stop %[1]s`", j.ID)
		return nil
	}
	if err != nil {
		return err
	}
	if j, err = api.GetJob.Call(ctx, client, api.ByID{ID: j.ID}); err != nil {
		return err
	}
	return cli.WithHint(cli.JobError(j), "starling why %s", j.ID)
}

// NewStop makes the command `starling stop`.
func NewStop(a *cli.App) *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "stop ID...",
		Short: "End jobs and pay their cost so far",
		Long: `Stops the job's programs, returns the leases and pays for the time metered until then. Returns at
once; --wait waits until the payment is final. Stopping a job that has ended does nothing.`,
		Example: `  starling stop jk3v5q2a
  starling stop --wait jk3v5q2a`,
		GroupID: cli.GroupJobs,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("stop needs an id"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			client, err := a.Client()
			if err != nil {
				return err
			}
			return Stop(a, ctx, client, args, wait)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until it has ended and everything is paid")
	return c
}

// Stop ends jobs and shows their outcome.
func Stop(a *cli.App, ctx context.Context, client *api.Client, ids []string, wait bool) error {
	jobs := []record.Job{}
	for _, id := range ids {
		if err := api.StopJob.Send(ctx, client, api.ByID{ID: id}); err != nil {
			return err
		}
		j, err := api.GetJob.Call(ctx, client, api.ByID{ID: id})
		if err != nil {
			return err
		}
		if wait {
			if j, err = waitFor(ctx, client, j.ID); err != nil {
				return err
			}
		}
		jobs = append(jobs, j)
	}
	return a.Show(jobs, func(t *cli.Table) {
		for _, j := range jobs {
			state := string(j.State)
			if !j.State.Ended() {
				state = "stopping"
			}
			t.Row(j.ID, state)
		}
	})
}

// NewWait makes the command `starling wait`.
func NewWait(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a job has ended and is paid",
		Long: `Waits for a job's end, prints its outcome in one line, and has the exit code of run: 0 if the job
succeeded.`,
		Example: `  starling wait jk3v5q2a && starling get jk3v5q2a results
  timeout 10m starling wait jk3v5q2a`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			j, err := waitFor(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			if err := a.Show(j, func(t *cli.Table) { t.Row(Summary(g, j)) }); err != nil {
				return err
			}
			return cli.WithHint(cli.JobError(j), "starling why %s", j.ID)
		},
	}
}

// waitFor returns the job when it has ended.
func waitFor(ctx context.Context, c *api.Client, id string) (record.Job, error) {
	j, err := api.GetJob.Call(ctx, c, api.ByID{ID: id})
	if err != nil || j.State.Ended() {
		return j, err
	}
	err = c.Events(ctx, j.ID, nil, func(now record.Job) { j = now })
	switch {
	case j.State.Ended():
		return j, nil
	case err == nil:
		err = api.ErrNoPeer
	}
	return j, fmt.Errorf("waiting for job %s: %w", j.ID, err)
}
