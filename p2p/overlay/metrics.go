package overlay

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// drop is why a packet was dropped.
type drop int

const (
	dropStranger  drop = iota // a datagram for no device here
	dropQUIC                  // QUIC was too slow
	dropBusy                  // a device was too slow
	dropUnknown               // a handshake under a key that is no member's
	dropForged                // a probe or a stream that its key does not open
	dropSpoofed               // from the TUN, Outside or a member, under another's address
	dropAstray                // to an address without a member
	dropTooBig                // larger than the path takes, and not to be cut
	dropQueue                 // the queue towards the members was full
	dropStream                // the queue of a stream was full
	dropSend                  // the kernel refused to send it
	dropMalformed             // from the TUN, no IPv4 packet
	drops
)

var dropNames = [drops]string{"stranger", "quic", "busy", "unknown_key", "forged", "spoofed", "astray", "too_big",
	"queue", "stream", "send", "malformed"}

// Stats counts packets by their outcome.
type Stats struct {
	dropped [drops]atomic.Uint64
	probes  struct{ sent, answered atomic.Uint64 }
	paths   struct{ up, down, moved atomic.Uint64 } // direct paths found, lost, and left for faster ones
}

// Dropped is how many packets were dropped, by reason.
func (s *Stats) Dropped() map[string]uint64 {
	out := make(map[string]uint64, drops)
	for i := range s.dropped {
		out[dropNames[i]] = s.dropped[i].Load()
	}
	return out
}

// Stats are the counts of all overlays of this host.
func (n *Network) Stats() *Stats { return &n.stats }

var (
	descDropped = prometheus.NewDesc("starling_overlay_dropped_packets_total",
		"Packets that overlays dropped, by reason.", []string{"reason"}, nil)
	descProbes = prometheus.NewDesc("starling_overlay_probes_total", "Probes for paths to members, sent and answered.",
		[]string{"what"}, nil)
	descPaths = prometheus.NewDesc("starling_overlay_direct_paths_total",
		"Direct paths to members that were found, lost, and left for faster ones.", []string{"what"}, nil)
	descDevices = prometheus.NewDesc("starling_overlay_devices",
		"Overlays that this peer is in now, once for each of its members.", nil, nil)
	descMembers = prometheus.NewDesc("starling_overlay_members", "Other members by how they are reached now.",
		[]string{"path"}, nil)
	descBytes = prometheus.NewDesc("starling_overlay_bytes",
		"Bytes to and from the members of now, WireGuard's own included.", []string{"direction"}, nil)
)

var _ prometheus.Collector = (*Network)(nil)

// Describe implements [prometheus.Collector].
func (n *Network) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDropped, descProbes, descPaths, descDevices, descMembers, descBytes} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *Network) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for i := range n.stats.dropped {
		count(descDropped, prometheus.CounterValue, float64(n.stats.dropped[i].Load()), dropNames[i])
	}
	count(descProbes, prometheus.CounterValue, float64(n.stats.probes.sent.Load()), "sent")
	count(descProbes, prometheus.CounterValue, float64(n.stats.probes.answered.Load()), "answered")
	count(descPaths, prometheus.CounterValue, float64(n.stats.paths.up.Load()), "found")
	count(descPaths, prometheus.CounterValue, float64(n.stats.paths.down.Load()), "lost")
	count(descPaths, prometheus.CounterValue, float64(n.stats.paths.moved.Load()), "moved")
	list := *n.list.Load()
	count(descDevices, prometheus.GaugeValue, float64(len(list)))
	paths := map[Path]int{PathDirect: 0, PathRelayed: 0, PathNone: 0}
	var rx, tx uint64
	for _, d := range list {
		for _, m := range d.Members() {
			paths[m.Path]++
			rx += m.Rx
			tx += m.Tx
		}
	}
	for p, v := range paths {
		count(descMembers, prometheus.GaugeValue, float64(v), string(p))
	}
	count(descBytes, prometheus.GaugeValue, float64(rx), "received")
	count(descBytes, prometheus.GaugeValue, float64(tx), "sent")
}
