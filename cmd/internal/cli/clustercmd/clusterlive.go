package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/cmd/internal/cli/livecmd"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/live"
)

func newClusterExec(a *cli.App) *cobra.Command {
	var rank int
	var all, stdin, tty bool
	var env []string
	var dir string
	c := &cobra.Command{
		Use:   "exec NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command on the head, on another member or on all",
		Long: `Runs one more command in a member's container, beside the engine: on the head, on --rank N or on all
running members. The exit code is that of the command. With --all, each line of output begins with its rank, and the
exit code is the first nonzero code in the order of the ranks.`,
		Example: `  starling cluster exec -it sweep -- bash
  starling cluster exec sweep -- ray status
  starling cluster exec sweep --all -- nvidia-smi -L
  starling cluster exec sweep --rank 3 -- cat /etc/cluster/hostfile`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cli.WithHint(cli.Usagef("exec needs a cluster"), "starling cluster exec NAME -- COMMAND")
			case len(args) == 1:
				return cli.WithHint(cli.Usagef("exec needs a command"),
					"it comes after --, as in `starling cluster exec %s -- ls`", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			p, err := livecmd.ProgramOf(args[1:], env, dir, tty)
			if err != nil {
				return err
			}
			if all && (stdin || tty || c.Flags().Changed("rank")) {
				return cli.Usagef("--all goes with none of -i, -t and --rank")
			}
			client, j, err := openCluster(a, ctx, args[0])
			if err != nil {
				return err
			}
			if all {
				return execAll(a, ctx, client, j, p)
			}
			if err := cli.CheckRank(j, rank); err != nil {
				return err
			}
			return livecmd.Exec(a, ctx, client, j.ID, rank, p, stdin)
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "run on this member; 0 is the head")
	c.Flags().BoolVar(&all, "all", false, "run on all running members")
	c.Flags().BoolVarP(&stdin, "interactive", "i", false, "forward standard input")
	c.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE, on top of the member's environment")
	c.Flags().StringVarP(&dir, "workdir", "w", "", "working directory (default that of the engine)")
	return c
}

// openCluster finds a cluster that has not ended.
func openCluster(a *cli.App, ctx context.Context, name string) (*api.Client, record.Job, error) {
	client, err := a.Client()
	if err != nil {
		return nil, record.Job{}, err
	}
	j, err := findCluster(a, ctx, client, name)
	if err == nil {
		err = going(j)
	}
	return client, j, err
}

// maxAtOnce is the number of members on which a command runs concurrently.
const maxAtOnce = 32

// execAll runs a command on all members that run.
func execAll(a *cli.App, ctx context.Context, c *api.Client, j record.Job, p live.Program) error {
	var ranks []int
	for i, r := range j.Ranks {
		if r.State == record.RankRunning {
			ranks = append(ranks, i)
		}
	}
	if len(ranks) == 0 {
		return cli.WithHint(cli.Usagef("no member of cluster %s runs: %s", j.Spec.Name, clusterState(j)),
			"starling cluster status %s", j.Spec.Name)
	}
	if n := len(j.Ranks) - len(ranks); n > 0 {
		a.Say("%s of %d do not run now and are left out", cli.Count(n, "member"), len(j.Ranks))
	}
	both := &sync.Mutex{}
	codes, errs := make([]int, len(ranks)), make([]error, len(ranks))
	places := make(chan struct{}, maxAtOnce)
	var wg sync.WaitGroup
	for i, rank := range ranks {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			prefix := "[" + strconv.Itoa(rank) + "] "
			o, e := &cli.Prefixed{W: &jobcmd.Locked{Mu: both, W: a.Out}, Prefix: prefix},
				&cli.Prefixed{W: &jobcmd.Locked{Mu: both, W: a.Err}, Prefix: prefix}
			codes[i], errs[i] = execOne(ctx, c, j.ID, rank, p, o, e)
			errs[i] = errors.Join(errs[i], o.Flush(), e.Flush())
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return &cli.Error{Code: cli.ExitInterrupted,
			Err: errors.New("interrupted; the commands were ended, the cluster runs on")}
	}
	for i, rank := range ranks {
		if errs[i] != nil {
			a.Say("rank %d: %v", rank, errs[i])
		} else if codes[i] != 0 {
			a.Say("rank %d: exit code %d", rank, codes[i])
		}
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return fmt.Errorf("rank %d: %w", ranks[i], errs[i])
	}
	if i := slices.IndexFunc(codes, func(code int) bool { return code != 0 }); i >= 0 {
		return &cli.ExitError{Code: codes[i]}
	}
	return nil
}

// execOne runs a command without input.
func execOne(ctx context.Context, c *api.Client, id string, rank int, p live.Program, stdout,
	stderr *cli.Prefixed) (int, error) {
	conn, err := c.Attach(ctx, id, rank, p)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := live.NewWriter(conn).Write(live.EOF, nil); err != nil {
		return 0, err
	}
	return live.Demultiplex(conn, stdout, stderr)
}

func newClusterLogs(a *cli.App) *cobra.Command {
	return jobcmd.LogsCommand(a, &cobra.Command{
		Use:   "logs NAME",
		Short: "Show the logs of a cluster",
		Long: `Writes the output of the members' engines and programs, each line with its rank. The output of a single
rank is written unchanged. With -f it follows the cluster until it has ended. The output of a Ray job is in
ray job logs, through port-forward.`,
		Example: `  starling cluster logs sweep
  starling cluster logs -f --tail 20 --rank 0 sweep`,
	}, "cluster", "show one member only; 0 is the head", func(ctx context.Context, c *api.Client,
		name string) (record.Job, error) {
		return findCluster(a, ctx, c, name)
	})
}
