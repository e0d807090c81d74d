package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/cluster/rayjobs"
)

// outcomes is the part of help that says how commands about jobs of Ray end.
const outcomes = `
The exit code is 0 when the job succeeded, 1 when it failed or was stopped, 2 where something is wrong with the command line or the
working directory, 5 where the cluster cannot be reached. An interrupt does not end the job.`

func newJobSubmit(a *App) *cobra.Command {
	var name, dir string
	var env []string
	var noWait bool
	r := rayjobs.Request{}
	c := &cobra.Command{
		Use:   "submit --cluster NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command on a Ray cluster, by Ray's own Jobs API",
		Long: `Hands a command to a Ray cluster (starling cluster up) and shows its log until it has ended. Needs no Ray and no Python here.

--working-dir sends a directory along, as ray job submit does: at most 100 MiB, without what .gitignore and .rayignore files name and
without .git, .venv, venv and __pycache__. The command starts in it, on the head; its tasks find it on every member. It may also be
the address of a zip that the cluster can fetch (https://, s3://, gs://).
` + outcomes,
		Example: `  starling job submit --cluster sweep --working-dir . -- python script.py
  starling job submit --cluster sweep --env HF_HOME=/tmp -- python -c 'import ray; ray.init(); print(ray.cluster_resources())'
  id=$(starling job submit --cluster sweep --no-wait -- python train.py)`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return WithHint(Usagef("submit needs a command"), "it comes after --, as in `starling job submit --cluster NAME -- python script.py`")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			var err error
			if r.Env, err = variables("--env", env); err != nil {
				return err
			}
			if r.CPUs < 0 || r.GPUs < 0 {
				return Usagef("--cpus and --gpus are numbers from 0")
			}
			r.Entrypoint = rayjobs.Quote(args)
			if r.ID == "" {
				r.ID = rayjobs.NewID()
			}
			ray, err := a.ray(ctx, name)
			if err != nil {
				return err
			}
			defer ray.Close()
			if r.WorkingDir, err = a.sendDir(ctx, ray, dir); err != nil {
				return err
			}
			if err := ray.Submit(ctx, r); err != nil {
				return rayError(name, fmt.Errorf("submitting: %w", err))
			}
			if noWait {
				if a.output == outputTable {
					a.say("follow it with `starling job logs -f --cluster %s %s`", name, r.ID)
				}
				return a.Show(map[string]string{"id": r.ID}, func(t *Table) { t.Row(r.ID) })
			}
			a.say("job %s on cluster %s", r.ID, name)
			return a.followRay(ctx, ray, name, r.ID)
		},
	}
	f := c.Flags()
	clusterFlag(c, &name)
	f.StringVar(&dir, "working-dir", "", "directory that goes along, or address of a zip")
	f.StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE for all of the job's processes; may be repeated")
	f.BoolVar(&noWait, "no-wait", false, "print the job's id and do not wait for its end")
	f.StringVar(&r.ID, "id", "", "the job's id, unique in its cluster (default a new one)")
	f.Float64Var(&r.CPUs, "cpus", 0, "CPUs set aside for the command itself")
	f.Float64Var(&r.GPUs, "gpus", 0, "GPUs set aside for the command itself; then it may run on a worker")
	return c
}

func clusterFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "cluster", "", "name of the Ray cluster, or id of its job; needed")
}

// ray is a client of a cluster's Jobs API, by a tunnel of its own. Close it.
func (a *App) ray(ctx context.Context, name string) (*rayjobs.Client, error) {
	if name == "" {
		return nil, WithHint(Usagef("--cluster says which cluster"), "`starling cluster ls` lists them; starling submit FILE runs a job that needs none")
	}
	client, j, err := a.openCluster(ctx, name)
	if err != nil {
		return nil, err
	}
	if e := j.Spec.Cluster.Engine; e != "ray" {
		return nil, WithHint(Usagef("cluster %s runs %s, and only ray takes jobs", j.Spec.Name, e), "starling cluster exec %s -- COMMAND", j.Spec.Name)
	}
	if err := usable(j); err != nil {
		return nil, err
	}
	token, err := client.ClusterToken(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	return rayjobs.New(rayjobs.Config{Token: token, Dial: dialRank(ctx, client, j.ID, 0, cluster.PortRayDashboard)}), nil
}

// sendDir gives the cluster a working directory, and returns what a job calls it.
func (a *App) sendDir(ctx context.Context, ray *rayjobs.Client, dir string) (string, error) {
	if dir == "" || strings.Contains(dir, "://") {
		return dir, nil
	}
	p := a.progress()
	defer p.clear()
	p.status("packing %s", dir)
	pack, err := rayjobs.Pack(dir)
	if err != nil {
		return "", rayError("", err)
	}
	defer pack.Close()
	p.status("sending %s of %s, %.1f MiB", count(pack.Files, "file"), dir, float64(pack.Size)/(1<<20))
	if err := ray.Upload(ctx, pack); err != nil {
		return "", rayError("", fmt.Errorf("sending %s: %w", dir, err))
	}
	return pack.URI(), nil
}

// followRay shows a job's log until it has ended, and returns how.
func (a *App) followRay(ctx context.Context, ray *rayjobs.Client, name, id string) error {
	j, err := ray.Follow(ctx, id, a.Out)
	if ctx.Err() != nil {
		a.say("detached; the job goes on. Come back with `starling job logs -f --cluster %s %s`, end it with `starling job stop --cluster %[1]s %[2]s`", name, id)
		return nil
	}
	if err != nil {
		return rayError(name, fmt.Errorf("following job %s: %w", id, err))
	}
	return rayOutcome(j)
}

// rayOutcome is the error of a job that ended without success; nil for others.
func rayOutcome(j rayjobs.Job) error {
	switch j.Status {
	case rayjobs.Stopped:
		return &Error{Code: ExitFailed, Err: fmt.Errorf("job %s was stopped", j.ID)}
	case rayjobs.Failed:
		err := fmt.Errorf("job %s failed: %s", j.ID, rayjobs.Reason(j.Message))
		if j.Exit != nil && *j.Exit != 0 {
			err = fmt.Errorf("job %s failed: its command ended with exit code %d", j.ID, *j.Exit)
		}
		return &Error{Code: ExitFailed, Err: err}
	}
	return nil
}

// rayError gives what went wrong with a cluster's Jobs API its exit code and hint.
func rayError(name string, err error) error {
	e := &Error{Code: ExitFailed, Err: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		e.Code = exitInterrupted
	case errors.Is(err, rayjobs.ErrUnreachable):
		e.Code, e.Hint = ExitUnreachable, "the head may be replaced just now: starling cluster status "+name
	case errors.Is(err, rayjobs.ErrNoJob):
		e.Code, e.Hint = ExitUsage, "`starling job ls --cluster "+name+"` lists them; a job ends with the head that it was given to"
	case errors.Is(err, rayjobs.ErrPackage), errors.Is(err, rayjobs.ErrID), errors.Is(err, rayjobs.ErrExists):
		e.Code = ExitUsage
	case errors.Is(err, rayjobs.ErrToken):
		e.Hint = "the program on the head changed its token, or is not the ray that was started there: starling cluster logs --rank 0 " + name
	}
	return e
}

func newJobLs(a *App) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "ls --cluster NAME",
		Short: "List the jobs of a Ray cluster",
		Long:  `Lists the jobs that the head knows: those that were submitted, and scripts that joined by themselves ("driver").`,
		Example: `  starling job ls --cluster sweep
  starling job ls --cluster sweep -o json`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			ray, err := a.ray(c.Context(), name)
			if err != nil {
				return err
			}
			defer ray.Close()
			jobs, err := ray.Jobs(c.Context())
			if err != nil {
				return rayError(name, err)
			}
			return a.Show(jobs, func(t *Table) {
				t.Head("ID", "STATUS", "AGE", "RAN", "EXIT", "COMMAND", "MESSAGE")
				for _, j := range jobs {
					ran, exit := "-", "-"
					if !j.Ended.IsZero() {
						ran = span(j.Ended.Sub(j.Started))
					} else if !j.Started.IsZero() && j.Status == rayjobs.Running {
						ran = span(time.Since(j.Started))
					}
					if j.Exit != nil {
						exit = fmt.Sprint(*j.Exit)
					}
					command, message := j.Entrypoint, ""
					if j.Driver {
						command = "(driver)"
					}
					if j.Status == rayjobs.Failed {
						message = rayjobs.Reason(j.Message)
					}
					t.Row(j.ID, strings.ToLower(string(j.Status)), ago(time.Now(), j.Started), ran, exit, clip(command, 60), clip(message, 60))
				}
			})
		},
	}
	clusterFlag(c, &name)
	return c
}

func newJobLogs(a *App) *cobra.Command {
	var name string
	var follow bool
	c := &cobra.Command{
		Use:   "logs --cluster NAME ID",
		Short: "Show the log of a job of a Ray cluster",
		Long:  `Writes what the job said. With -f it goes on until the job has ended, and exits as submit does.` + "\n" + outcomes,
		Example: `  starling job logs --cluster sweep raysubmit_eRngkPfjZm7xQB1K
  starling job logs -f --cluster sweep raysubmit_eRngkPfjZm7xQB1K`,
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ray, err := a.ray(c.Context(), name)
			if err != nil {
				return err
			}
			defer ray.Close()
			if follow {
				return a.followRay(c.Context(), ray, name, args[0])
			}
			text, err := ray.Log(c.Context(), args[0])
			if err != nil {
				return rayError(name, err)
			}
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
	clusterFlag(c, &name)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	return c
}

func newJobStop(a *App) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:     "stop --cluster NAME ID",
		Short:   "End a job of a Ray cluster",
		Long:    `Tells the job's command to end and kills it three seconds later. The cluster goes on. Stopping a job that has ended does nothing.`,
		Example: `  starling job stop --cluster sweep raysubmit_eRngkPfjZm7xQB1K`,
		Args:    exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ray, err := a.ray(c.Context(), name)
			if err != nil {
				return err
			}
			defer ray.Close()
			going, err := ray.Stop(c.Context(), args[0])
			if err != nil {
				return rayError(name, err)
			}
			state := "stopping"
			if !going {
				j, err := ray.Job(c.Context(), args[0])
				if err != nil {
					return rayError(name, err)
				}
				state = strings.ToLower(string(j.Status))
			}
			return a.Show(map[string]string{"id": args[0], "state": state}, func(t *Table) { t.Row(args[0], state) })
		},
	}
	clusterFlag(c, &name)
	return c
}
