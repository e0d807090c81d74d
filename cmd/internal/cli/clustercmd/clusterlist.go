package clustercmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
)

func newClusterLs(a *cli.App) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the clusters of this peer",
		Long: `Lists the clusters that have not ended, newest first. COST covers the metered time, not the time to
come.`,
		Example: `  starling cluster ls
  starling cluster ls -a -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			client, err := a.Client()
			if err != nil {
				return err
			}
			q := record.Query{State: "open"}
			if all {
				q.State = ""
			}
			jobs, err := clusters(ctx, client, q)
			if err != nil {
				return err
			}
			g, err := a.Genesis()
			if err != nil {
				return err
			}
			list := []clusterInfo{}
			for _, j := range jobs {
				s, err := readCluster(ctx, client, g, j)
				if err != nil {
					return err
				}
				list = append(list, s)
			}
			return a.Show(list, func(t *cli.Table) {
				t.Head("NAME", "JOB", "ENGINE", "STATE", "MEMBERS", "AGE", "LEFT", "HOURLY", "COST")
				short := jobcmd.Shortest(jobs)
				for i, s := range list {
					left := "-"
					if until := jobs[i].Until(); !until.IsZero() && jobs[i].State == record.Running {
						left = cli.Span(time.Until(until))
					}
					t.Row(s.Name, short[s.ID], s.Engine, s.State, fmt.Sprintf("%d/%d", running(jobs[i]),
						len(s.Members)), cli.Ago(time.Now(), s.Created), left,
						hourly(g, s), g.FormatAmount(s.Cost))
				}
			})
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "include ended clusters")
	return c
}

func hourly(g market.Genesis, s clusterInfo) string {
	if s.Hourly == 0 {
		return "-"
	}
	return g.FormatAmount(s.Hourly)
}

// clusterInfo is the shown part of a cluster.
type clusterInfo struct {
	ID       string         `json:"id"` // of its job
	Name     string         `json:"name"`
	Engine   string         `json:"engine"`
	State    string         `json:"state"`
	Reason   string         `json:"reason,omitempty"`
	Image    string         `json:"image"`
	Command  []string       `json:"command,omitempty"`
	Network  cluster.Class  `json:"network"` // slowest accepted class
	Created  time.Time      `json:"created"`
	Ready    time.Time      `json:"ready,omitzero"` // time at which its engine became ready
	Ended    time.Time      `json:"ended,omitzero"`
	Until    time.Time      `json:"until,omitzero"` // end of timeouts.run
	Autostop string         `json:"autostop,omitempty"`
	Hourly   market.Amount  `json:"hourly"` // base units, of the current leases
	Cost     market.Amount  `json:"cost"`   // base units, so far
	Budget   market.Amount  `json:"budget"`
	Measured *record.Span   `json:"measured,omitempty"` // between its members, before their leases were signed
	Members  []memberInfo   `json:"members"`
	Paths    []cluster.Path `json:"paths,omitempty"` // with --paths
}

// memberInfo is one rank of a cluster.
type memberInfo struct {
	Rank      int           `json:"rank"`
	Role      string        `json:"role"` // head or worker
	Provider  string        `json:"provider,omitempty"`
	State     string        `json:"state"`
	Address   string        `json:"address"` // inside of the cluster
	Epoch     uint32        `json:"epoch"`   // counts the leases of the rank
	Path      record.Path   `json:"path,omitempty"`
	RTTMillis float64       `json:"rttMillis,omitempty"`
	GPUs      uint32        `json:"gpus"`
	Since     time.Time     `json:"since,omitzero"`
	Cost      market.Amount `json:"cost"` // base units, of all leases of the rank
	Hourly    market.Amount `json:"hourly"`
	Lost      int           `json:"lost,omitempty"` // number of replacements
	Reason    string        `json:"reason,omitempty"`
	units     record.Units
}

// readCluster returns a cluster with its leases.
func readCluster(ctx context.Context, c *api.Client, g market.Genesis, j record.Job) (clusterInfo, error) {
	spec := j.Spec.Cluster
	s := clusterInfo{
		ID: j.ID, Name: j.Spec.Name, Engine: spec.Engine, State: clusterState(j), Reason: j.Reason,
		Image: j.Spec.Image, Command: spec.Command, Network: spec.Network,
		Created: j.Created, Ended: j.Ended, Budget: j.Spec.Payment.Budget, Measured: j.Network, Members: []memberInfo{},
	}
	if spec.Autostop > 0 {
		s.Autostop = time.Duration(spec.Autostop).String()
	}
	if ready(j) {
		s.Ready = j.Cluster.Ready
	}
	if j.State == record.Running {
		s.Until = j.Until()
	}
	leases, err := api.JobReceipts.Call(ctx, c, api.ByID{ID: j.ID})
	if err != nil {
		return s, err
	}
	for i, r := range j.Ranks {
		s.Members = append(s.Members, memberOf(j, i, r))
	}
	for _, l := range leases {
		s.Cost += l.Owed
		if int(l.Rank) >= len(s.Members) {
			continue // the cluster was larger then
		}
		m := &s.Members[l.Rank]
		m.Cost += l.Owed
		if signed, err := market.UnmarshalLease(l.Signed); err == nil && l.Active && l.Epoch == m.Epoch {
			if cost, err := signed.Core.Rate.Owed(uint64(time.Hour/time.Millisecond) / g.SlotMillis); err == nil {
				m.Hourly = cost
				s.Hourly += cost
			}
		}
	}
	if j.State.Ended() {
		s.Cost = j.Owed
	}
	return s, nil
}

func memberOf(j record.Job, i int, r record.Rank) memberInfo {
	m := memberInfo{Rank: i, Role: "worker", State: jobcmd.RankState(r), Address: cluster.Address(uint32(i)).String(),
		Epoch: r.Epoch, Lost: r.Restarts, Reason: r.Reason, units: r.Units}
	if i == 0 {
		m.Role = "head"
	}
	if !r.Provider.IsZero() {
		m.Provider = r.Provider.String()
	}
	if j.Spec.Resources.Class.Family() == "gpu" {
		m.GPUs = j.Spec.Resources.Units
	}
	if r.State == record.RankRunning {
		m.Since = r.Begun
	}
	if w := r.Live.Ways; w != nil && w.Head != nil {
		m.Path, m.RTTMillis = w.Head.Path, w.Head.RTTMillis
	}
	return m
}

func newClusterStatus(a *cli.App) *cobra.Command {
	var paths bool
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show a cluster: members, connectivity, cost",
		Long: `Shows a cluster's state and its members. PATH and RTT describe the connection of a member to the head, as
its provider measures it inside the cluster: direct is UDP from peer to peer; relayed is a stream through another peer,
slower and shared. EPOCH counts the leases of a rank: more than 1 means that a member was replaced. --paths lists the
measurements between every two members before their leases were signed: the shortest round trip, and the rate of a
short probe.`,
		Example: `  starling cluster status sweep
  starling cluster status sweep --paths
  starling cluster status sweep -o json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			j, err := findCluster(a, c.Context(), client, args[0])
			if err != nil {
				return err
			}
			s, err := readCluster(c.Context(), client, g, j)
			if err != nil {
				return err
			}
			if paths {
				if s.Paths, err = api.ClusterPaths.Call(c.Context(), client, api.ByID{ID: j.ID}); err != nil {
					return err
				}
			}
			return a.Show(s, func(t *cli.Table) {
				clusterTable(t, g, s)
				if paths {
					pathsTable(t, s.Paths)
				}
			})
		},
	}
	c.Flags().BoolVar(&paths, "paths", false, "include the measurements between every two members")
	return c
}

func pathsTable(t *cli.Table, paths []cluster.Path) {
	t.Row()
	t.Row("RANKS", "RTT", "MBIT/S", "PATH")
	for _, p := range paths {
		mbit, path := "-", record.PathDirect
		if p.Mbit > 0 {
			mbit = fmt.Sprint(p.Mbit)
		}
		if p.Relayed {
			path = record.PathRelayed
		}
		t.Row(fmt.Sprintf("%d–%d", p.A, p.B), cli.Millis(float64(p.RTTMicros)/1000), mbit, path)
	}
	if len(paths) == 0 {
		t.Row("nothing was measured")
	}
}

func clusterTable(t *cli.Table, g market.Genesis, s clusterInfo) {
	now := time.Now()
	row := func(name, value string) {
		if value != "" {
			t.Row(name, value)
		}
	}
	row("cluster", s.Name)
	row("job", s.ID)
	row("state", s.State)
	row("reason", s.Reason)
	row("engine", s.Engine+", on a "+string(s.Network)+" network or a faster one")
	if s.Measured != nil {
		row("measured", s.Measured.String())
	}
	row("command", strings.Join(s.Command, " "))
	row("image", s.Image)
	row("created", cli.Ago(now, s.Created)+" ago")
	if !s.Ready.IsZero() {
		row("ready", cli.Ago(now, s.Ready)+" ago, "+s.Ready.Sub(s.Created).Round(100*time.Millisecond).String()+
			" after it was ordered")
	}
	if !s.Until.IsZero() {
		row("until", s.Until.Local().Format(time.DateTime)+", `starling job extend "+s.ID+" 1h` gives it more time")
	}
	row("autostop", s.Autostop)
	cost := g.FormatAmount(s.Cost)
	if s.Hourly > 0 {
		cost += ", " + g.FormatAmount(s.Hourly) + " an hour"
	}
	row("cost", cost+", budget "+g.FormatAmount(s.Budget))
	t.Row()
	t.Row("RANK", "ROLE", "PROVIDER", "STATE", "ADDRESS", "EPOCH", "PATH", "RTT", "GPUS", "SINCE", "COST", "REASON")
	for _, m := range s.Members {
		provider, path, gpus := "-", string(m.Path), "-"
		if m.Provider != "" {
			provider = m.Provider[:min(8, len(m.Provider))]
		}
		if path == "" {
			path = "-"
		}
		if m.GPUs > 0 {
			gpus = strings.TrimSpace(fmt.Sprintf("%d %s", m.GPUs, m.units.Model))
			if m.units.Simulated {
				gpus += " (simulated)"
			}
		}
		t.Row(m.Rank, m.Role, provider, m.State, m.Address, m.Epoch, path, cli.Millis(m.RTTMillis), gpus,
			cli.Ago(now, m.Since), g.FormatAmount(m.Cost), cli.Clip(m.Reason, 60))
	}
}
