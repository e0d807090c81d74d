package auditing

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/service"
	rules "github.com/starling-network/starling/verify/audit"
)

const (
	// ill is the number of audits in a row that a unit does not pass before it counts as out of order.
	ill = 2
	// recent is the age up to which an audit counts for a unit. Older ones may be of removed units.
	recent = 24 * time.Hour
)

// counted is results that count the verdicts of this peer.
type counted struct {
	audit.Results
	room *Room
}

// Judged implements audit.Results.
func (c counted) Judged(provider sign.Key, v rules.Verdict) {
	if int(v.Outcome) < len(c.room.judged) {
		c.room.judged[v.Outcome].Add(1)
	}
	c.Results.Judged(provider, v)
}

// units returns the audits of each unit of this peer, the newest first.
func (r *Room) units() map[market.UnitID][]audit.Past {
	out := map[market.UnitID][]audit.Past{}
	for _, p := range r.audits.Shelf().State().All() {
		out[p.Unit] = append(out[p.Unit], p)
	}
	return out
}

// Health implements service.Health: it returns a problem while units of this peer that were audited lately are
// delisted, or did not pass their last two audits.
func (r *Room) Health() *service.Problem {
	var units int
	var worst audit.Past
	for id, past := range r.units() {
		failed := 0
		for failed < len(past) && past[failed].Failed != "" {
			failed++
		}
		delisted := r.audits.Shelf().State().Standing(id).State == rules.Delisted
		if failed < ill && !delisted || time.Since(past[0].At) > recent {
			continue
		}
		if units++; worst.At.Before(past[0].At) {
			worst = past[0]
		}
	}
	if units == 0 {
		return nil
	}
	return &service.Problem{
		Problem: fmt.Sprintf("%d units do not pass their audits; of %s, %s, class %s: %s", units, worst.Unit.Short(),
			worst.Standing, worst.Class, market.Clean(worst.Failed, maxText)),
		Remedy: "see starling proof audit; repair a unit that is too slow or wrong for its class, and if too few " +
			"members reach this peer, see its addresses in starling peer status",
	}
}

// maxText bounds the part of an audit's error that is quoted, bytes.
const maxText = 400

var (
	descAudits = prometheus.NewDesc("starling_audits_total",
		"Audits of this peer's units by class and result: passed, failed, undecided, or absent, which is missed.",
		[]string{"class", "result"}, nil)
	descVerdicts = prometheus.NewDesc("starling_audit_verdicts_total",
		"Verdicts of this peer about units of others, by outcome.", []string{"outcome"}, nil)
	descStanding = prometheus.NewDesc("starling_audit_units",
		"Units of this peer that were audited, by class and standing in the market.", []string{"class", "standing"},
		nil)
)

// Describe implements prometheus.Collector.
func (*Room) Describe(ch chan<- *prometheus.Desc) {
	ch <- descAudits
	ch <- descVerdicts
	ch <- descStanding
}

// Collect implements prometheus.Collector.
func (r *Room) Collect(ch chan<- prometheus.Metric) {
	counts, classes := r.audits.Shelf().State().Counts(), map[market.Class]map[rules.State]int{}
	for o := range counts {
		classes[o.Class] = map[rules.State]int{}
	}
	for id, past := range r.units() {
		c := past[0].Class
		if classes[c] == nil {
			classes[c] = map[rules.State]int{}
		}
		classes[c][r.audits.Shelf().State().Standing(id).State]++
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for c, standings := range classes {
		for _, result := range []rules.Result{rules.Passed, rules.Failed, rules.Undecided, rules.Absent} {
			n := counts[audit.Outcome{Class: c, Result: result}]
			send(descAudits, prometheus.CounterValue, float64(n), string(c), result.String())
		}
		for state := rules.Unproven; state <= rules.Delisted; state++ {
			send(descStanding, prometheus.GaugeValue, float64(standings[state]), string(c), state.String())
		}
	}
	for o := rules.Pass; o <= rules.Wrong; o++ {
		send(descVerdicts, prometheus.CounterValue, float64(r.judged[o].Load()), o.String())
	}
}
