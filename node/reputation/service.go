package reputation

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/reputation"
)

// Service is a Book that runs and measures itself for Prometheus.
type Service struct {
	*Book
	decimals uint8
}

// NewService returns the service of a book on a network with a token of decimals decimals.
func NewService(b *Book, decimals uint8) Service { return Service{b, decimals} }

// Name implements service.Service.
func (Service) Name() string { return "reputation" }

var (
	descLeases = prometheus.NewDesc("starling_reputation_leases",
		"Own leases that count in the reputation of the other party, by its role and conduct.",
		[]string{"role", "conduct"}, nil)
	descTokens = prometheus.NewDesc("starling_reputation_tokens",
		"Tokens of these leases: settled with a party that kept them, or lost by one that failed them.",
		[]string{"role", "conduct"}, nil)
	descRecords = prometheus.NewDesc("starling_reputation_records",
		"Audits and proofs that count in the reputation of providers, by kind.", []string{"kind"}, nil)
	descOthers = prometheus.NewDesc("starling_reputation_others",
		"Leases of other peers, from their anchored receipts, that count in the reputation of their sides.", nil, nil)
)

// Describe implements prometheus.Collector.
func (Service) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeases, descTokens, descRecords, descOthers} {
		ch <- d
	}
}

// conduct is the role and the kind of a fact about a lease of this peer's own.
type conduct struct {
	role reputation.Role
	kind reputation.Kind
}

// tally counts the facts: own leases with their values, records by kind, and leases of others.
func (s Service) tally() (
	leases map[conduct]int, values map[conduct]market.Amount, kinds map[reputation.Kind]int, shown int,
) {
	leases, values, kinds = map[conduct]int{}, map[conduct]market.Amount{}, map[reputation.Kind]int{}
	b := s.Book
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, facts := range b.facts {
		switch n.source {
		case others:
			shown++
		case records:
			for _, f := range facts {
				kinds[f.Kind]++
			}
		case own:
			for _, f := range facts {
				if f.Subject != b.cfg.Self {
					c := conduct{f.Role, f.Kind}
					leases[c]++
					values[c] += f.Value
				}
			}
		}
	}
	return leases, values, kinds, shown
}

// Collect implements prometheus.Collector.
func (s Service) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	leases, values, kinds, shown := s.tally()
	for _, role := range []reputation.Role{reputation.Provider, reputation.Buyer} {
		for _, kind := range []reputation.Kind{reputation.Kept, reputation.Failed} {
			c := conduct{role, kind}
			send(descLeases, float64(leases[c]), role.String(), kind.String())
			send(descTokens, float64(values[c])/math.Pow10(int(s.decimals)), role.String(), kind.String())
		}
	}
	for kind := reputation.AuditPassed; kind <= reputation.Lied; kind++ {
		send(descRecords, float64(kinds[kind]), kind.String())
	}
	send(descOthers, float64(shown))
}
