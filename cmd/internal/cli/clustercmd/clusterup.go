package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

func newClusterUp(a *cli.App) *cobra.Command {
	var o jobcmd.SubmitOptions
	c := &cobra.Command{
		Use:   "up FILE",
		Short: "Lease a cluster's members, join them and start the engine",
		Long: `Reads a file of kind Cluster (starling cluster example ENGINE writes one; FILE may be - for standard
input), leases all members or none, joins them and starts the engine. It reports progress until the engine accepts
work, prints the next steps, and leaves the cluster running. A cluster with a command is followed until it has ended,
as starling run follows a job.

This peer holds the cluster's keys, connects its members to one another and pays them. It must stay on, so guardians
are refused. If this computer does not stay on, order from a peer that does, over ssh.

The file is refused if its engine does not work on the network it allows: training that exchanges every gradient
between all members at each step needs metro or lan. With -d the command does not wait. An interrupt does not end the
cluster; starling cluster down does.`,
		Example: `  starling cluster example ray > sweep.yaml         # ray, torchrun, mpi, dask or none
  starling cluster up sweep.yaml
  starling cluster up --dry-run sweep.yaml
  starling cluster up -d sweep.yaml && starling cluster status sweep`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := jobcmd.LoadJob(a, args[0])
			if err != nil {
				return err
			}
			if spec.Cluster == nil {
				return cli.WithHint(cli.Usagef("%s is the file of a plain job: its kind is not Cluster", args[0]),
					"starling submit %s", args[0])
			}
			if o.DryRun {
				return jobcmd.Submit(a, c.Context(), spec, o)
			}
			if err := o.Check(); err != nil {
				return err
			}
			return clusterUp(a, c.Context(), spec, o)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.Detach, "detach", "d", false, "do not wait until it is ready; print its job id")
	o.WaitFlag(c)
	f.BoolVar(&o.DryRun, "dry-run", false,
		"estimate the cost as starling quote does; order nothing")
	return c
}

// clusterUp submits a cluster and waits until its engine accepts work.
func clusterUp(a *cli.App, ctx context.Context, spec job.Job, o jobcmd.SubmitOptions) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	same, err := clusters(ctx, c, record.Query{Name: spec.Name, State: "open"})
	if err != nil {
		return err
	}
	for _, j := range same {
		if j.Spec.Name == spec.Name {
			return cli.WithHint(cli.Usagef("a cluster is called %s already: %s, %s", spec.Name, j.ID, clusterState(j)),
				"starling cluster down %s ends it; or give this one another metadata.name", spec.Name)
		}
	}
	c, g, j, err := jobcmd.HandIn(a, ctx, spec, o)
	if err != nil {
		return err
	}
	if o.Detach || !spec.Cluster.Serves() {
		return jobcmd.Submitted(a, ctx, c, g, j, o)
	}
	if j.Warning != "" {
		a.Say("warning: %s", j.Warning)
	}
	if j, err = untilReady(a, ctx, c, g, j); err != nil {
		return err
	}
	if a.Output != cli.OutputTable {
		return a.Show(j, nil)
	}
	s, err := readCluster(ctx, c, g, j)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "cluster %s is ready: %s, %s", j.Spec.Name, cli.Count(len(j.Ranks), "member"), s.Engine)
	if s.Hourly > 0 {
		fmt.Fprintf(a.Out, ", %s an hour", g.FormatAmount(s.Hourly))
	}
	fmt.Fprintf(a.Out, ", at most %s in all%s\n\n", g.FormatAmount(s.Budget), untilText(s))
	_, err = fmt.Fprintln(a.Out, strings.Join(nextSteps(j), "\n"))
	return err
}

// untilText is the remaining time of the cluster, as a part of a sentence.
func untilText(s clusterInfo) string {
	text := ""
	if !s.Until.IsZero() {
		text = ", until " + s.Until.Local().Format(time.DateTime)
	}
	if s.Autostop != "" {
		text += " or " + s.Autostop + " of idleness"
	}
	return text
}

// untilReady reports progress until the engine accepts work. The cluster keeps running if ctx ends earlier.
func untilReady(a *cli.App, ctx context.Context, c *api.Client, g market.Genesis, j record.Job) (record.Job, error) {
	p := a.Progress()
	defer p.Clear()
	p.Say("cluster %s, job %s", j.Spec.Name, j.ID)
	w := &rise{p: p, last: j, began: time.Now()}
	inner, enough := context.WithCancel(ctx)
	defer enough()
	var wg sync.WaitGroup
	wg.Go(func() { // the time on the status line
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			w.status()
			select {
			case <-inner.Done():
				return
			case <-t.C:
			}
		}
	})
	err := c.Events(inner, j.ID, w.step, func(j record.Job) {
		if w.change(j); ready(j) || j.State.Ended() {
			enough()
		}
	})
	enough()
	wg.Wait()
	j = w.last
	p.Clear()
	switch {
	case ready(j):
		return j, nil
	case j.State.Ended():
		a.Say("%s", jobcmd.Summary(g, j))
		err := cli.JobError(j)
		if err == nil {
			err = &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("cluster %s ended before it was ready", j.Spec.Name)}
		}
		return j, cli.WithHint(err, "starling why %s; starling cluster logs %[1]s", j.ID)
	case ctx.Err() != nil:
		return j, &cli.Error{Code: cli.ExitInterrupted,
			Err:  errors.New("interrupted; the cluster is still starting"),
			Hint: fmt.Sprintf("starling cluster status %s; starling cluster down %[1]s ends it", j.Spec.Name)}
	case err == nil:
		err = api.ErrNoPeer
	}
	return j, &cli.Error{Code: cli.ExitUnreachable, Err: fmt.Errorf("following cluster %s: %w", j.Spec.Name, err),
		Hint: "the cluster resumes when the peer runs again: starling cluster status " + j.Spec.Name}
}

// rise reports the start of a cluster, from its job's steps and changes.
type rise struct {
	p     *cli.Progress
	began time.Time

	mu       sync.Mutex
	last     record.Job
	asked    map[string]bool // providers that answered with a quote
	held     map[int]bool    // ranks with a hold
	said     map[string]bool // keys of the lines that once printed
	declined int
}

// step handles a step of the trace.
func (r *rise) step(s record.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s.Kind {
	case record.StepOrdered: // a new order: earlier holds are void
		r.asked, r.held, r.declined = map[string]bool{}, map[int]bool{}, 0
		return
	case record.StepQuoted:
		if r.asked == nil {
			r.asked = map[string]bool{}
		}
		r.asked[s.Provider] = true
	case record.StepDeclined, record.StepInfeasible, record.StepBlocked:
		r.declined++
	case record.StepHeld:
		if r.held == nil {
			r.held = map[int]bool{}
		}
		if s.Rank != nil {
			r.held[*s.Rank] = true
		}
	case record.StepLost, record.StepRestarted, record.StepLeased:
		r.p.Say("%s", s)
	default:
		if clusterSteps[s.Kind] {
			r.p.Say("%s", s)
		}
	}
}

// clusterSteps are the steps that only clusters have.
var clusterSteps = map[record.StepKind]bool{record.StepMeasured: true, record.StepScaled: true}

// once prints a line the first time it is called with its key.
func (r *rise) once(key, format string, args ...any) {
	if r.said == nil {
		r.said = map[string]bool{}
	}
	if !r.said[key] {
		r.said[key] = true
		r.p.Say(format, args...)
	}
}

// change handles the job's current state, and reports each stage when it is first reached.
func (r *rise) change(j record.Job) {
	r.mu.Lock()
	r.last = j
	n := len(j.Ranks)
	if len(r.held) == n || leased(j) == n {
		r.once("offers", "%s answered, %s held", cli.Count(len(r.asked), "provider"), cli.Count(n, "member"))
	}
	if leased(j) == n {
		r.once("leases", "%s signed, %s is the head", cli.Count(n, "lease"), j.Ranks[0].Provider.Short())
	}
	if running(j) == n {
		r.once("images", "all members have the image and the program")
	}
	if u, all := waysTold(j); all && u.Cut == 0 && n > 1 {
		r.once("ways", "every member reaches every other one: %s", waysText(u))
	}
	r.mu.Unlock()
	r.status()
}

// status shows the line that changes.
func (r *rise) status() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.p.Status("%s: %s, %s", r.last.Spec.Name, r.stage(), time.Since(r.began).Round(time.Second))
}

// stage is the cluster's current activity.
func (r *rise) stage() string {
	j := r.last
	n := len(j.Ranks)
	if j.State.Ended() || j.State == record.Settling || j.State == record.Queued {
		return clusterState(j)
	}
	switch {
	case leased(j) < n && len(r.held) > 0:
		return fmt.Sprintf("%d of %d members held, %s signed", len(r.held), n, cli.Count(leased(j), "lease"))
	case leased(j) < n:
		return fmt.Sprintf("looking for %s: %s, %d do not fit", cli.Count(n, "member"),
			cli.Count(len(r.asked), "offer"), r.declined)
	case running(j) < n:
		text := fmt.Sprintf("%d of %d members have their image", running(j), n)
		if done, all := pulled(j); all > 0 {
			text += fmt.Sprintf(", %d %% of the rest", 100*done/all)
		}
		return text
	}
	if u, _ := waysTold(j); u.Cut > 0 {
		return "joining the members: " + waysText(u)
	}
	return "waiting for " + j.Spec.Cluster.Engine
}

// leased counts the ranks that have a lease.
func leased(j record.Job) (n int) {
	for _, r := range j.Ranks {
		if r.State != record.RankWaiting && r.State != record.RankJoining {
			n++
		}
	}
	return n
}

// pulled returns the fetched and the total bytes of the images of members that still fetch them.
func pulled(j record.Job) (done, all uint64) {
	for _, r := range j.Ranks {
		if r.Live.Phase == "pulling" {
			done += min(r.Live.Pulled, r.Live.PullTotal)
			all += r.Live.PullTotal
		}
	}
	return done, all
}

// waysText formats the counts of waysTold. Each path is counted at both ends, and may be relayed at one only.
func waysText(w record.Ways) string {
	var words []string
	for _, of := range []struct {
		n    int
		what string
	}{{w.Direct, "direct"}, {w.Relayed, "relayed"}, {w.Cut, "not yet"}} {
		if of.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", (of.n+1)/2, of.what))
		}
	}
	return strings.Join(words, ", ")
}

// waysTold counts the paths between members, each from both of its ends. all is true once every member has reported.
func waysTold(j record.Job) (sum record.Ways, all bool) {
	all = true
	for _, r := range j.Ranks {
		if w := r.Live.Ways; w == nil || w.Direct+w.Relayed+w.Cut < len(j.Ranks)-1 {
			all = false
		} else {
			sum.Direct, sum.Relayed, sum.Cut = sum.Direct+w.Direct, sum.Relayed+w.Relayed, sum.Cut+w.Cut
		}
	}
	return sum, all
}
