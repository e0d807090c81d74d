// Package metrics measures a peer for Prometheus: its connections, the places that others have of it, the chain, and
// the jobs of its user. Other rooms measure themselves.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
)

// Buyer is the buying loop of the peer.
type Buyer interface {
	// Open lists the peer's own jobs that have not ended, newest first.
	Open() []record.Job
	// States counts the peer's own jobs.
	States() map[record.State]int
}

// Config is the parts of a peer that are measured.
type Config struct {
	Host    *p2p.Host
	Version string
	Network string // the network's name
	Started time.Time
	Slots   *slots.Clock
	Buyer   Buyer
	Replies *replies.Router
	// Registry has the host's own metrics. It is optional; if nil, there are none.
	Registry *prometheus.Registry
	// Rooms are the rooms with metrics of their own.
	Rooms    []prometheus.Collector
	Services *service.List
}

// Handler answers with the metrics of a peer, in the text format of Prometheus.
func Handler(c Config) http.Handler {
	reg := c.Registry
	if reg == nil {
		reg = prometheus.NewRegistry()
		if ov := c.Host.Overlay(); ov != nil {
			reg.MustRegister(ov)
		}
	}
	reg.MustRegister(c.Rooms...)
	reg.MustRegister(peer{c})
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2, DisableCompression: true})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("starling_"+name, help, labels, nil)
}

var (
	descInfo    = desc("info", "1, with the version, network and id of this peer.", "version", "network", "peer")
	descStarted = desc("start_time_seconds", "When the peer started, Unix time.")
	descPeers   = desc("connected_peers", "Peers that this one is connected to.")
	descConns   = desc("connections", "Connections by direction and path.", "direction", "path")
	descPlaces  = desc("admission_places",
		"Places that others have of this peer, by their standing.", "what", "standing")
	descCeiling = desc("admission_ceiling",
		"Of those places, how many may be in use for one of that standing to get another.", "what", "standing")
	descRefused  = desc("admission_refused_total", "Requests for such a place that were refused.", "what", "standing")
	descEvicted  = desc("admission_evicted_total", "Connections of strangers that were ended for newcomers.")
	descChain    = desc("chain_reachable", "1 while the chain answers.")
	descSlot     = desc("chain_slot", "The chain's slot as it is reckoned here.")
	descJobs     = desc("jobs", "Jobs of this peer's user, by state.", "state")
	descJobsOver = desc("jobs_ended_total", "Jobs of this peer's user that ended, by outcome.", "outcome")
	descClusters = desc("clusters", "Clusters of this peer's user that have not ended.", "ready")
	descWays     = desc("cluster_ways",
		"Ways between the members of those clusters, each counted from both ends, by how packets go.", "path")
	descHealthy = desc("service_healthy", "1 while a service of this peer is in order.", "service")
	descQuotes  = desc("quotes_total", "Quotes for gossiped orders that this peer received, by result.", "result")
)

// peer measures a peer at each scrape.
type peer struct{ Config }

// Describe implements [prometheus.Collector].
func (peer) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInfo, descStarted, descPeers, descConns, descPlaces, descCeiling, descRefused, descEvicted, descChain,
		descSlot, descJobs, descJobsOver, descClusters, descWays, descHealthy, descQuotes,
	} {
		ch <- d
	}
}

// sink takes the values of one collection.
type sink chan<- prometheus.Metric

func (s sink) set(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) count(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// Collect implements [prometheus.Collector].
func (p peer) Collect(ch chan<- prometheus.Metric) {
	s := sink(ch)
	s.set(descInfo, 1, p.Version, p.Network, p.Host.ID().String())
	s.set(descStarted, float64(p.Started.UnixMilli())/1000)
	p.connections(s)
	p.admission(s)
	s.set(descChain, truth(p.Slots.Reachable()))
	if slot, err := p.Slots.Now(time.Now()); err == nil {
		s.set(descSlot, float64(slot))
	}
	p.jobs(s)
	quotes := p.Replies.Stats()
	s.count(descQuotes, quotes.Passed, "passed")
	s.count(descQuotes, quotes.Taken, "taken")
	s.count(descQuotes, quotes.Refused, "refused")
	s.count(descQuotes, quotes.Lost, "lost")
	p.health(s)
}

// health measures the services that have a health.
func (p peer) health(s sink) {
	ill := map[string]bool{}
	for _, problem := range p.Services.Health() {
		ill[problem.Service] = true
	}
	for _, h := range service.With[service.Health](p.Services) {
		if of, ok := h.(service.Service); ok {
			s.set(descHealthy, truth(!ill[of.Name()]), of.Name())
		}
	}
}

// connections counts libp2p's.
func (p peer) connections(s sink) {
	s.set(descPeers, float64(len(p.Host.Network().Peers())))
	type kind struct{ direction, path string }
	conns := map[kind]int{}
	for _, c := range p.Host.Network().Conns() {
		k := kind{"out", string(p.Host.Describe(c).Path)}
		if c.Stat().Direction == network.DirInbound {
			k.direction = "in"
		}
		conns[k]++
	}
	for k, v := range conns {
		s.set(descConns, float64(v), k.direction, k.path)
	}
}

// admission measures the places that others have of the peer.
func (p peer) admission(s sink) {
	all, ok := p.Host.Admission()
	if !ok {
		return
	}
	for place, uses := range map[string][]admit.Use{
		"handshakes": all.Handshakes, "connections": all.Conns, "streams": all.Streams,
	} {
		for _, u := range uses {
			s.set(descPlaces, float64(u.Used), place, u.Standing.String())
			s.set(descCeiling, float64(u.Ceiling), place, u.Standing.String())
			s.count(descRefused, u.Refused, place, u.Standing.String())
		}
	}
	s.count(descEvicted, all.Evicted)
}

// jobs counts those of the peer's user.
func (p peer) jobs(s sink) {
	ready, ways := map[bool]int{true: 0, false: 0}, map[string]int{"direct": 0, "relayed": 0, "none": 0}
	for _, j := range p.Buyer.Open() {
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
	for state, v := range p.Buyer.States() {
		s.set(descJobs, float64(v), string(state))
		if state.Ended() {
			s.count(descJobsOver, uint64(v), string(state))
		}
	}
	for is, v := range ready {
		s.set(descClusters, float64(v), strconv.FormatBool(is))
	}
	for path, v := range ways {
		s.set(descWays, float64(v), path)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
