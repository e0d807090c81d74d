package node

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// Metrics says what a peer measures of itself beside what costs nothing until somebody asks.
type Metrics struct {
	// Libp2p adds what libp2p counts: connections, streams and limits by protocol, DHT and gossip, NAT, relays. It counts all the
	// time and takes memory.
	Libp2p bool `yaml:"libp2p"`
	// Listen is the loopback address at which every user of this machine reads /metrics; empty: only the local API's own user does,
	// over its socket.
	Listen string `yaml:"listen"`
}

// desc describes one metric of this peer.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("starling_"+name, help, labels, nil)
}

var (
	descInfo         = desc("info", "1, with what this peer runs.", "version", "network", "peer")
	descStarted      = desc("start_time_seconds", "When the peer started, Unix time.")
	descPeers        = desc("connected_peers", "Peers that this one is connected to.")
	descConns        = desc("connections", "Connections by who opened them and how they run.", "direction", "path")
	descAdmitted     = desc("admission_places", "Places that others have of this peer, by their standing.", "what", "standing")
	descCeiling      = desc("admission_ceiling", "Of those places, how many may be in use for one of that standing to get another.", "what", "standing")
	descNotAdmitted  = desc("admission_refused_total", "Requests for such a place that were refused.", "what", "standing")
	descEvicted      = desc("admission_evicted_total", "Connections of strangers that were ended for newcomers.")
	descChain        = desc("chain_reachable", "1 while the chain answers.")
	descSlot         = desc("chain_slot", "The chain's slot as it is reckoned here.")
	descOffers       = desc("offers", "Offers of this peer that are out, one for each class.")
	descUnits        = desc("units", "Units of this peer's offers.", "state")
	descLeases       = desc("leases", "Holds and leases of this peer's units, by state.", "state")
	descExecutions   = desc("cluster_executions", "Executions of this peer that are members of a cluster now.")
	descJobs         = desc("jobs", "Jobs of this peer's user, by state.", "state")
	descClusters     = desc("clusters", "Clusters of this peer's user that have not ended.", "ready")
	descClusterWays  = desc("cluster_ways", "Ways between the members of those clusters, each counted from both ends, by how packets go.", "path")
	descEgressFlows  = desc("egress_flows", "Connections of containers to the outside, and to the peer's services.")
	descEgressOpened = desc("egress_flows_opened_total", "Such connections that were let out.")
	descEgressBytes  = desc("egress_bytes_total", "Bytes of their content.", "direction")
	descEgressHeld   = desc("egress_memory_bytes", "What those connections may hold of this peer's and the kernel's memory.")
	descEgressBudget = desc("egress_memory_limit_bytes", "The most of it, of which each container has the same share.")
	descEgressNo     = desc("egress_refused_total", "Connections, packets and names that were refused, by reason.", "reason")
	descHeard        = desc("orders_dropped_total", "Orders heard over gossip that this peer's provider had no time for.")
	descFlood        = desc("gossip_dropped_total", "Messages over what a neighbour or network may send.")
	descQuotes       = desc("quotes_total", "Quotes for gossiped orders that came here, by what became of them.", "result")
	descs            = []*prometheus.Desc{
		descInfo, descStarted, descPeers, descConns, descAdmitted, descCeiling, descNotAdmitted, descEvicted, descChain, descSlot, descOffers, descUnits, descLeases, descExecutions, descJobs, descClusters, descClusterWays,
		descEgressFlows, descEgressOpened, descEgressBytes, descEgressHeld, descEgressBudget, descEgressNo, descHeard, descFlood, descQuotes,
	}
)

// Metrics answers with what there is to measure of this peer, in the text format of Prometheus. Nothing is kept for it before it is asked
// for first.
func (n *Node) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.metrics().ServeHTTP(w, r) })
}

func (n *Node) newMetrics() http.Handler {
	reg := n.p.Metrics
	if reg == nil {
		reg = prometheus.NewRegistry()
		if ov := n.p.Host.Overlay(); ov != nil {
			reg.MustRegister(ov)
		}
	}
	reg.MustRegister(gauges{n}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2, DisableCompression: true})
}

// gauges reads a peer when it is asked.
type gauges struct{ n *Node }

// Describe implements [prometheus.Collector].
func (gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(descs, descsMoney) {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	n := g.n
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	by := func(d *prometheus.Desc, m map[string]int) {
		for k, v := range m {
			set(d, float64(v), k)
		}
	}
	set(descInfo, 1, n.p.Version, n.p.Genesis.Network, n.p.Host.ID().String())
	set(descStarted, float64(n.started.UnixMilli())/1000)
	g.connections(set)
	g.admission(set, count)
	set(descChain, truth(n.slots.Reachable()))
	if slot, err := n.slots.Now(time.Now()); err == nil {
		set(descSlot, float64(slot))
	}
	if n.provider != nil {
		total, free := n.provider.Units()
		by(descUnits, map[string]int{"free": free, "taken": total - free})
		leases := map[string]int{}
		for _, s := range n.provider.Sold() {
			leases[s.Record.State.String()]++
		}
		by(descLeases, leases)
		set(descOffers, float64(n.provider.Out()))
		set(descExecutions, float64(n.provider.Members()))
	}
	g.jobs(set)
	g.money(ch)
	g.work(ch)
	if n.orders != nil {
		count(descHeard, n.orders.heard.lost())
		count(descFlood, n.orders.g.Stats().Flood)
	}
	quotes := n.replies.Stats()
	for what, v := range map[string]uint64{"passed": quotes.Passed, "taken": quotes.Taken, "refused": quotes.Refused, "lost": quotes.Lost} {
		count(descQuotes, v, what)
	}
	now, used, most := n.outsides.stats()
	set(descEgressHeld, float64(used))
	set(descEgressBudget, float64(most))
	set(descEgressFlows, float64(now.Flows))
	count(descEgressOpened, now.Opened)
	count(descEgressBytes, now.Sent, "sent")
	count(descEgressBytes, now.Received, "received")
	for why, v := range now.Refused {
		count(descEgressNo, v, why.String())
	}
}

// connections counts those of libp2p.
func (g gauges) connections(set func(d *prometheus.Desc, v float64, labels ...string)) {
	h := g.n.p.Host
	set(descPeers, float64(len(h.Network().Peers())))
	type kind struct{ direction, path string }
	conns := map[kind]int{}
	for _, c := range h.Network().Conns() {
		k := kind{"out", string(h.Describe(c).Path)}
		if c.Stat().Direction == network.DirInbound {
			k.direction = "in"
		}
		conns[k]++
	}
	for k, v := range conns {
		set(descConns, float64(v), k.direction, k.path)
	}
}

// admission tells what others have of the peer.
func (g gauges) admission(set func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	all, ok := g.n.p.Host.Admission()
	if !ok {
		return
	}
	for what, uses := range map[string][]admit.Use{"handshakes": all.Handshakes, "connections": all.Conns, "streams": all.Streams} {
		for _, u := range uses {
			set(descAdmitted, float64(u.Used), what, u.Standing.String())
			set(descCeiling, float64(u.Ceiling), what, u.Standing.String())
			count(descNotAdmitted, u.Refused, what, u.Standing.String())
		}
	}
	count(descEvicted, all.Evicted)
}

// jobs counts those of the peer's user.
func (g gauges) jobs(set func(d *prometheus.Desc, v float64, labels ...string)) {
	ready, ways := map[bool]int{true: 0, false: 0}, map[string]int{"direct": 0, "relayed": 0, "none": 0}
	for _, j := range g.n.buyer.Open() {
		if j.Cluster == nil {
			continue
		}
		ready[!j.Cluster.Ready.IsZero()]++
		for _, r := range j.Ranks {
			if w := r.Live.Ways; w != nil {
				ways["direct"] += w.Direct
				ways["relayed"] += w.Relayed
				ways["none"] += w.Cut
			}
		}
	}
	for s, v := range g.n.buyer.States() {
		set(descJobs, float64(v), string(s))
	}
	for r, v := range ready {
		set(descClusters, float64(v), strconv.FormatBool(r))
	}
	for p, v := range ways {
		set(descClusterWays, float64(v), p)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// outsides are the ways out of this peer's containers, and what those did that are closed.
type outsides struct {
	mu     sync.Mutex
	budget *egress.Budget         // of all
	all    map[*egress.Stack]bool // that are open
	past   egress.Stats           // Flows is 0
}

// open makes one for a container.
func (o *outsides) open(p Parts, j provider.Joining) (*egress.Stack, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, err := outside(p.Config, func() []netip.Addr { return addrsOf(p.Host.Addrs()) }, j, o.shared())
	if err != nil {
		return nil, err
	}
	if o.all == nil {
		o.all = map[*egress.Stack]bool{}
	}
	o.all[s] = true
	return s, nil
}

// shared is the budget of all: an eighth of the machine's memory, but not more than the default. o.mu is held.
func (o *outsides) shared() *egress.Budget {
	if o.budget == nil {
		most := int64(egress.DefaultBudget)
		if m, err := readMachine(); err == nil && m.memoryMiB > 0 {
			most = min(most, int64(m.memoryMiB)<<20/8)
		}
		o.budget = egress.NewBudget(most)
	}
	return o.budget
}

// close closes one.
func (o *outsides) close(s *egress.Stack) error {
	err := s.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[s] {
		delete(o.all, s)
		o.past = plus(o.past, s.Stats())
		o.past.Flows = 0
	}
	return err
}

// stats are those of all since the peer started, with how many bytes of the budget are used.
func (o *outsides) stats() (sum egress.Stats, used, most int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sum = plus(egress.Stats{}, o.past)
	for s := range o.all {
		sum = plus(sum, s.Stats())
	}
	return sum, o.shared().Used(), o.shared().Max()
}

// plus is the sum of two, in a map of its own.
func plus(a, b egress.Stats) egress.Stats {
	out := egress.Stats{Flows: a.Flows + b.Flows, Opened: a.Opened + b.Opened, Sent: a.Sent + b.Sent, Received: a.Received + b.Received, Refused: map[egress.Reason]uint64{}}
	for _, s := range []egress.Stats{a, b} {
		for why, v := range s.Refused {
			out.Refused[why] += v
		}
	}
	return out
}
