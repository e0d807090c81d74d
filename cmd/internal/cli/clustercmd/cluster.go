// Package clustercmd has the commands of clusters, below starling cluster.
package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// NewCluster makes the command `starling cluster`.
func NewCluster(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupJobs, &cobra.Command{
		Use:   "cluster",
		Short: "Make several peers one machine for Ray, MPI, Dask, torchrun",
		Long: `A cluster is a job in which all members share one overlay network, wherever they are. Each member has a
network interface (ovl0) with its own address, host names for the others (head, node-1, node-2, …) and an unmodified
engine. Traffic between members is encrypted end to end with WireGuard. It goes directly over UDP if possible, else
through a relay.

All members are leased or none. The peer chooses them by the connectivity measured between them; the most reliable
member is the head (rank 0). Only a lost member is replaced. A cluster is paid for until you take it down, its command
ends, its run time expires, or it was idle for the autostop time.

In each member, /etc/cluster/cluster.json lists the members and the round-trip times and rates measured between them. A
member has internet access if the job sets network: internet and its provider allows it. It never reaches the
provider's own machine and network. If the measured network is too slow for the engine, the cluster is refused with
the reason before anything is signed. The peer that orders a cluster must stay on: guardians are refused.

A cluster is described by a file:

  apiVersion: v1
  kind: Cluster
  metadata: {name: sweep}
  spec:
    size: 8                             members, each on a peer of its own
    image: rayproject/ray:2.51.0        image of every member
    engine: ray                         ray, torchrun, mpi, dask or none
    command: [python, sweep.py]         optional: without it, ray, dask or none wait for your work
    resources: {gpus: 1, memory: 8Gi}   of each member
    placement: {network: metro}         slowest accepted network: lan, metro or wan
    autostop: 30m
    timeouts: {run: 8h}
    payment: {maxPrice: 0.05/unit-hour, budget: 3}

starling cluster example ENGINE writes a file for each engine, with its options.

Every command takes a cluster's name, or the id of its job. These commands work on clusters too: starling why,
proof, job extend, cp.`,
		Example: `  starling cluster example ray > sweep.yaml
  starling cluster up sweep.yaml
  starling cluster status sweep
  starling cluster port-forward sweep                 the dashboard; the next line submits a job through it
  ray job submit --address http://127.0.0.1:8265 --working-dir . -- python script.py
  starling cluster exec sweep --all -- nvidia-smi -L
  starling cluster scale sweep 16
  starling cluster down sweep`,
	}, newClusterUp(a), newClusterExample(a), newClusterLs(a), newClusterStatus(a), newClusterExec(a),
		newClusterLogs(a), newClusterForward(a),
		newClusterToken(a), newClusterScale(a), newClusterDown(a))
}

// findCluster finds a cluster by its name or its job's id. Of several clusters with one name it returns the open one,
// else the newest.
func findCluster(a *cli.App, ctx context.Context, c *api.Client, name string) (record.Job, error) {
	named, err := clusters(ctx, c, record.Query{Name: name})
	if err != nil {
		return record.Job{}, err
	}
	var open, ended []record.Job
	for _, j := range named {
		switch {
		case j.Spec.Name != name:
		case j.State.Ended():
			ended = append(ended, j)
		default:
			open = append(open, j)
		}
	}
	switch {
	case len(open) == 1:
		return open[0], nil
	case len(open) > 1:
		return record.Job{}, cli.WithHint(cli.Usagef("%d clusters are called %s: %s", len(open), name,
			strings.Join(ids(open), ", ")), "give the id instead of the name")
	case len(ended) > 0:
		return ended[0], nil
	}
	j, err := api.GetJob.Call(ctx, c, api.ByID{ID: name})
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Status == http.StatusNotFound {
		return j, cli.WithHint(cli.Usagef("no cluster is called %q", name), "`starling cluster ls` lists them")
	}
	if err == nil && j.Spec.Cluster == nil {
		err = cli.WithHint(cli.Usagef("job %s is a plain job, not a cluster", j.ID),
			"starling status %s; starling exec, logs and port-forward are for jobs", j.ID)
	}
	return j, err
}

func ids(jobs []record.Job) []string {
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = j.ID
	}
	return out
}

// clusters lists the jobs that are clusters, newest first.
func clusters(ctx context.Context, c *api.Client, q record.Query) ([]record.Job, error) {
	q.Limit = record.PageMax
	jobs, err := c.Jobs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := []record.Job{}
	for _, j := range jobs {
		if j.Spec.Cluster != nil {
			out = append(out, j)
		}
	}
	return out, nil
}

// going returns an error if a cluster has ended or is stopping.
func going(j record.Job) error {
	if !j.State.Ended() && j.State != record.Settling && !j.Stopping {
		return nil
	}
	text := "has ended"
	if j.Reason != "" {
		text += ": " + j.Reason
	}
	return cli.WithHint(cli.Usagef("cluster %s %s", j.Spec.Name, text),
		"starling cluster up FILE makes a new one; starling cluster logs %s shows its output", j.ID)
}

// ready reports whether the cluster's engine takes work.
func ready(j record.Job) bool {
	return j.Cluster != nil && !j.Cluster.Ready.IsZero() && j.State == record.Running
}

// running counts the members with a running program.
func running(j record.Job) (n int) {
	for _, r := range j.Ranks {
		if r.Runs() {
			n++
		}
	}
	return n
}

// clusterState is the state of a cluster, for a table: "starting, 3 of 8 run", "ready".
func clusterState(j record.Job) string {
	switch {
	case j.State.Ended():
		return string(j.State)
	case j.State == record.Settling:
		return "settling, then " + string(j.Outcome)
	case j.Stopping:
		return "going down"
	case j.Paused && j.State == record.Running:
		return "paused"
	case j.State != record.Running:
		return string(j.State)
	case running(j) < len(j.Ranks):
		state := "starting"
		if ready(j) {
			state = "ready"
		}
		return fmt.Sprintf("%s, %d of %d run", state, running(j), len(j.Ranks))
	case !ready(j):
		return "starting"
	}
	return "ready"
}
