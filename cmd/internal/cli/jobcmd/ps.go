package jobcmd

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// NewPs makes the command `starling ps`.
func NewPs(a *cli.App) *cobra.Command {
	var all, ids bool
	c := &cobra.Command{
		Use:        "ps",
		SuggestFor: []string{"ls", "list", "jobs"},
		Short:      "List the jobs of this peer",
		Long: `Lists the jobs that have not ended, newest first. Ids are shortened to their unique beginnings; every
command accepts those.`,
		Example: `  starling ps
  starling ps -a -o json
  starling stop $(starling ps -q)`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			q := record.Query{Limit: record.PageMax}
			if !all {
				q.State = "open"
			}
			jobs, err := client.Jobs(c.Context(), q)
			if err != nil {
				return err
			}
			g, err := a.Genesis()
			if err != nil {
				return err
			}
			if ids {
				for _, j := range jobs {
					fmt.Fprintln(a.Out, j.ID)
				}
				return nil
			}
			if len(jobs) == 0 && !all {
				a.Say("no job is open; `starling ps -a` lists ended jobs too")
			}
			return a.Show(jobs, func(t *cli.Table) { psTable(t, g, jobs, Shortest(jobs)) })
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "include ended jobs")
	c.Flags().BoolVarP(&ids, "quiet", "q", false, "print whole ids only")
	return c
}

func psTable(t *cli.Table, g market.Genesis, jobs []record.Job, short map[string]string) {
	now := time.Now()
	t.Head("ID", "NAME", "STATE", "RANKS", "ROUND", "AGE", "LEFT", "COST", "CHECKED", "REASON")
	for _, j := range jobs {
		done := 0
		for _, r := range j.Ranks {
			if r.State == record.RankDone {
				done++
			}
		}
		round, cost := "-", "-"
		if n := j.Spec.RoundCount(); n > 1 {
			round = fmt.Sprintf("%d/%d", min(j.Round+1, n), n)
		}
		if j.State.Ended() || j.State == record.Settling {
			cost = g.FormatAmount(j.Owed)
		}
		state := string(j.State)
		if j.Paused && j.State == record.Running {
			state = "paused"
		}
		ranks := fmt.Sprintf("%d/%d", done, len(j.Ranks))
		if slices.ContainsFunc(j.Ranks, func(r record.Rank) bool { return r.Units.Simulated }) {
			ranks += " (simulated)"
		}
		left := "-"
		if until := j.Until(); !until.IsZero() && j.State == record.Running {
			left = cli.Span(until.Sub(now))
		}
		t.Row(short[j.ID], j.Spec.Name, state, ranks, round, cli.Ago(now, j.Created), left, cost, checkedText(j),
			cli.Clip(j.Reason, 60))
	}
}

// checkedText is the progress of the check of a job's results, for a table.
func checkedText(j record.Job) string {
	if text := j.VerifyText(); text != "" {
		return cli.Clip(text, 60)
	}
	return "-"
}

// unitsText is the kind of units, for a table: "gpu/l4 NVIDIA L4 (simulated)".
func unitsText(u record.Units) string {
	text := string(u.Class)
	if u.Class.Family() != u.Class && u.Model != "" { // a CPU's model is too long for its information
		text += " " + u.Model
	}
	if u.Simulated {
		text += " (simulated)"
	}
	if text == "" {
		return "-"
	}
	return text
}

// Shortest maps every job to the shortest unique prefix of its id, at least 8 characters.
func Shortest(jobs []record.Job) map[string]string {
	out := make(map[string]string, len(jobs))
	for _, j := range jobs {
		n := min(8, len(j.ID))
		for _, o := range jobs {
			for o.ID != j.ID && n < len(j.ID) && strings.HasPrefix(o.ID, j.ID[:n]) {
				n++
			}
		}
		out[j.ID] = j.ID[:n]
	}
	return out
}

// jobStatus is the output of status.
type jobStatus struct {
	record.Job
	Cost market.Amount `json:"cost"` // current sum of the vouchers of all leases
	// Copies are those of its outputs, or nil.
	Copies *record.ShownCopies `json:"copies,omitempty"`
}

// NewStatus makes the command `starling status`.
func NewStatus(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:        "status ID",
		SuggestFor: []string{"show", "inspect", "describe"},
		Short:      "Show one job: its ranks, rounds and cost",
		Long:       `Shows a job's state, the provider of each rank with its route, and the cost of the job so far.`,
		Example: `  starling status jk3v5q2a
  starling status jk3v5q2a -o json`,
		GroupID: cli.GroupJobs,
	}, 1, readStatus, func(t *cli.Table, p cli.Peer, s jobStatus) { statusTable(t, p.Genesis, s) })
}

func readStatus(ctx context.Context, c cli.Peer, args []string) (jobStatus, error) {
	j, err := api.GetJob.Call(ctx, c, api.ByID{ID: args[0]})
	if err != nil {
		return jobStatus{}, err
	}
	s := jobStatus{Job: j, Cost: j.Owed}
	if s.Copies, err = cli.CopiesOf(ctx, c, j); err != nil {
		return s, err
	}
	if j.State.Ended() {
		return s, nil
	}
	leases, err := api.JobReceipts.Call(ctx, c, api.ByID{ID: j.ID})
	if err != nil {
		return s, err
	}
	s.Cost, s.Receipts = 0, 0
	for _, l := range leases {
		s.Cost += l.Owed
		s.Receipts += len(l.Receipts)
	}
	return s, nil
}

// RankState is a rank's state, with its provider's report while its program runs: "running, healthy".
func RankState(r record.Rank) string {
	text := string(r.State)
	switch {
	case r.State == record.RankLeased && time.Until(r.After) > 0:
		text += ", starts again in " + time.Until(r.After).Round(time.Second).String()
	case r.State != record.RankRunning:
	case r.Live.Phase == "pulling":
		text = "pulling"
		if r.Live.PullTotal > 0 {
			hi, lo := bits.Mul64(100, min(r.Live.Pulled, r.Live.PullTotal)) // the provider's numbers are not validated
			percent, _ := bits.Div64(hi, lo, r.Live.PullTotal)
			text += fmt.Sprintf(" %d%%", percent)
		}
	case r.Live.Phase == "paused":
		text = "paused"
	}
	if r.State == record.RankRunning && r.Live.Health != "" {
		text += ", " + r.Live.Health
	}
	return text
}

func statusTable(t *cli.Table, g market.Genesis, s jobStatus) {
	j := s.Job
	row := func(name, value string) {
		if value != "" {
			t.Row(name, value)
		}
	}
	row("job", j.ID)
	row("name", j.Spec.Name)
	if c := j.Spec.Cluster; c != nil {
		row("cluster", c.Engine+", `starling cluster status "+j.ID+"` shows the connectivity of its members")
	}
	row("key", j.Key)
	row("repeats", j.Rerun)
	state := string(j.State)
	if j.State == record.Settling {
		state += ", then " + string(j.Outcome)
	}
	if j.Paused && j.State == record.Running {
		state += ", paused; its units are held and paid for, `starling job resume " + j.ID + "` resumes it"
	}
	if j.Stopping && !j.State.Ended() {
		state += ", stopping"
	}
	row("state", state)
	row("reason", j.Reason)
	row("warning", j.Warning)
	row("created", cli.Ago(time.Now(), j.Created)+" ago")
	if !j.Started.IsZero() {
		name := "ran for"
		if j.Finished.IsZero() && j.Ended.IsZero() {
			name = "running for"
		}
		ran, most := j.Ran(time.Now()), j.Spec.Timeouts.Run.String()
		if ran > j.Spec.Timeouts.Run {
			most += ", and " + j.Spec.Timeouts.Grace().String() + " to stop"
		}
		row(name, ran.Round(100*time.Millisecond).String()+", at most "+most)
	}
	if until := j.Until(); !until.IsZero() && j.State == record.Running {
		row("until", until.Local().Format(time.DateTime)+", `starling job extend "+j.ID+" 1h` gives it more time")
	}
	if n := j.Spec.RoundCount(); n > 1 {
		row("rounds", fmt.Sprintf("%d of %d done", j.Round, n))
	}
	checkRows(row, j)
	if j.Spec.Idle > 0 && !j.State.Ended() {
		row("idle", fmt.Sprintf("stopped after %v without use", time.Duration(j.Spec.Idle)))
	}
	row("cost", g.FormatAmount(s.Cost)+", budget "+g.FormatAmount(j.Spec.Payment.Budget))
	row("paid", strings.TrimPrefix(paidText(g, j), "paid "))
	if l := j.Lamports; l.Fees > 0 {
		row("SOL", "about "+chain.FormatSOL(l.Fees)+" for fees"+map[bool]string{true: ", " + chain.FormatSOL(l.Rent) +
			" for rent until its escrow is closed"}[l.Rent > 0])
	}
	cli.CopyRows(row, s.Copies)
	row("receipts", fmt.Sprint(j.Receipts))
	for _, tx := range j.Transactions {
		row("transaction", tx)
	}
	for _, e := range j.Escrows {
		row("escrow", escrowText(g, e))
		for _, l := range e.Transactions {
			row("", strings.Join(append([]string{string(l.Tx)}, l.Calls...), " "))
		}
	}
	rankRows(t, j.Ranks)
}

// checkRows shows the checks of a job's results and of its units.
func checkRows(row func(name, value string), j record.Job) {
	if r := j.Replica; r != nil {
		row("checked", j.VerifyText())
	}
	for i, v := range j.Verified {
		row("checked", fmt.Sprintf("rank %d: %s", i, v.Text()))
		for _, id := range v.Replicas {
			row("", "replica "+id)
		}
		if v.Evidence != "" {
			row("", "proof "+v.Evidence+", `starling proof export "+v.Evidence+" FILE`")
		}
	}
	for i, r := range j.Ranks {
		if text := r.Exclusive.Text(); text != "" {
			row("exclusivity", fmt.Sprintf("rank %d: %s", i, text))
		}
		if r.Exclusive == nil || r.Exclusive.Health == nil {
			continue
		}
		for _, c := range r.Exclusive.Health.Changes {
			row("hardware", fmt.Sprintf("rank %d: %s", i, c.Text))
		}
	}
}

// rankRows shows the ranks of a job.
func rankRows(t *cli.Table, ranks []record.Rank) {
	t.Row()
	t.Row("RANK", "STATE", "PROVIDER", "ROUTE", "LEASE", "LOST", "RESTARTS", "EXIT", "UNITS", "REASON")
	for i, r := range ranks {
		provider, lease, exit, route := "-", "-", "-", "-"
		if !r.Provider.IsZero() {
			provider = r.Provider.Short()
		}
		if !r.Lease.IsZero() {
			lease = r.Lease.Short()
		}
		if r.Route != "" {
			route = r.Route
		}
		if r.State == record.RankDone || r.State == record.RankFailed {
			exit = fmt.Sprint(r.Exit)
		}
		reason := r.Reason
		if r.Unextended != "" {
			reason = "not extended: " + r.Unextended
		}
		t.Row(i, RankState(r), provider, route, lease, r.Restarts, r.Retries, exit, unitsText(r.Units),
			cli.Clip(reason, 60))
	}
}

// escrowText describes the money in one of a job's escrows.
func escrowText(g market.Genesis, e record.Escrow) string {
	text := fmt.Sprintf("%s: %s deposited, %s paid (%s of it fees), %s back", e.Address, g.FormatAmount(e.Deposited),
		g.FormatAmount(e.Paid),
		g.FormatAmount(e.Fees), g.FormatAmount(e.Refunded))
	switch {
	case e.Closed:
		return text + ", closed"
	case e.Waiting != "":
		return text + "; " + e.Waiting
	}
	return text
}
