// Package execnet joins executions to their networks: members of a cluster to its overlay, and every execution to the
// part of the outside that its operator allows.
//
//	program ── TUN ──┬── overlay ── other members' peers
//	                 └── egress ─── the internet, by the operator's rules
package execnet

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Config is the configuration of Networks.
type Config struct {
	Host *p2p.Host
	// Policy and Limits are those of the way of each container to the outside.
	Policy egress.Policy
	Limits egress.Limits
	// MemoryMiB is the memory of the machine; 0 means that it is not known. Connections may hold an eighth of it.
	MemoryMiB uint64
	Log       *slog.Logger
}

// Networks is the networks of a peer's executions. It implements member.Networks, and is a service.
type Networks struct {
	cfg    Config
	budget *egress.Budget // of the connections of all

	mu   sync.Mutex
	all  map[*egress.Stack]bool // the open stacks
	past egress.Stats           // of the closed stacks; Flows is 0
}

// New makes networks, of which no execution is a member yet.
func New(cfg Config) *Networks {
	most := int64(egress.DefaultBudget)
	if cfg.MemoryMiB > 0 {
		most = min(most, int64(cfg.MemoryMiB)<<20/8)
	}
	return &Networks{cfg: cfg, budget: egress.NewBudget(most), all: map[*egress.Stack]bool{}}
}

// Name implements service.Service.
func (*Networks) Name() string { return "networks" }

// Run waits for ctx. Each network has its own goroutines, which its execution ends.
func (*Networks) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// open opens the way out of a container.
func (n *Networks) open(j member.Joining) (*egress.Stack, error) {
	own := func() []netip.Addr { return addrsOf(n.cfg.Host.Addrs()) }
	s, err := outside(n.cfg.Policy, n.cfg.Limits, own, j, n.budget)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[s] = true
	return s, nil
}

// close closes a way out.
func (n *Networks) close(s *egress.Stack) error {
	err := s.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all[s] {
		delete(n.all, s)
		n.past = plus(n.past, s.Stats())
		n.past.Flows = 0
	}
	return err
}

// stats sums up all ways out since the peer started.
func (n *Networks) stats() egress.Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := plus(egress.Stats{}, n.past)
	for s := range n.all {
		sum = plus(sum, s.Stats())
	}
	return sum
}

// plus returns the sum of two, in a new map.
func plus(a, b egress.Stats) egress.Stats {
	out := egress.Stats{
		Flows: a.Flows + b.Flows, Opened: a.Opened + b.Opened, Sent: a.Sent + b.Sent, Received: a.Received + b.Received,
		Refused: map[egress.Reason]uint64{},
	}
	for _, s := range []egress.Stats{a, b} {
		for why, v := range s.Refused {
			out.Refused[why] += v
		}
	}
	return out
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("starling_egress_"+name, help, labels, nil)
}

var (
	descFlows   = desc("flows", "Connections of containers to the outside, and to the peer's services.")
	descOpened  = desc("flows_opened_total", "Permitted connections of containers.")
	descBytes   = desc("bytes_total", "Bytes of the content of these connections.", "direction")
	descHeld    = desc("memory_bytes", "Memory of the peer and the kernel that those connections may hold.")
	descBudget  = desc("memory_limit_bytes", "The most of it, of which each container has the same share.")
	descRefused = desc("refused_total", "Connections, packets and names that were refused, by reason.", "reason")
)

// Describe implements prometheus.Collector.
func (*Networks) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descFlows, descOpened, descBytes, descHeld, descBudget, descRefused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (n *Networks) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	now := n.stats()
	send(descHeld, prometheus.GaugeValue, float64(n.budget.Used()))
	send(descBudget, prometheus.GaugeValue, float64(n.budget.Max()))
	send(descFlows, prometheus.GaugeValue, float64(now.Flows))
	send(descOpened, prometheus.CounterValue, float64(now.Opened))
	send(descBytes, prometheus.CounterValue, float64(now.Sent), "sent")
	send(descBytes, prometheus.CounterValue, float64(now.Received), "received")
	for why, v := range now.Refused {
		send(descRefused, prometheus.CounterValue, float64(v), why.String())
	}
}
