package audits

import (
	"time"

	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/exclusive"
)

const (
	leaseTime = 24 * time.Hour
	// provenShare is the part of a card's speed that audits prove: their times include the network, and the tenth
	// percentile counts.
	provenShare = 0.9
)

// lease is a card under a lease whose buyer probes it, by the rules of verify/exclusive.
type lease struct {
	u      *unit
	budget exclusive.Budget
	watch  exclusive.Watch
	at     time.Duration
}

func newLease(w *play.World, proven bool) *lease {
	l := &lease{u: honest(w, anyGPU(w)), budget: exclusive.Budget{Lease: leaseTime}}
	if proven {
		l.watch.Proven = uint64(provenShare * l.u.card * l.u.hardware.Operations)
	}
	return l
}

// probe makes the next probe beside a number of clients; false if the lease has ended or its share of probes is used
// up.
func (l *lease) probe(clients func(at time.Duration) float64) (exclusive.Verdict, bool) {
	n, s := l.u.w.Noise, exclusive.Fit(exclusive.GPU, l.watch.Last())
	speed := n.Speed() * l.u.card / clients(l.at)
	trip := n.Trip()
	elapsed := time.Duration(float64(l.u.hardware.Multiplies(s))/speed) + trip + n.Delay()
	if !l.budget.Allows(elapsed) || l.at > leaseTime {
		return 0, false
	}
	l.budget.Spent += elapsed
	var v exclusive.Verdict
	l.watch, v = l.watch.See(exclusive.Observe(s, elapsed, trip+n.Fastest(8)))
	l.at += l.budget.Gap(elapsed, v != exclusive.Fine, l.u.w.R.Uint64())
	return v, true
}

// contends sells the card to others more clients from some moment in the lease's first half.
func contends(others float64, proven bool) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		l, t := newLease(w, proven), play.Trial{}
		from := time.Duration(w.R.Int64N(int64(leaseTime / 2)))
		for t.Checks < play.Horizon {
			shared := l.at >= from
			v, goes := l.probe(func(at time.Duration) float64 {
				if at < from {
					return 1
				}
				return 1 + others
			})
			if !goes {
				break
			}
			if shared {
				t.Checks++
			}
			if v == exclusive.Contended && shared {
				t.Caught, t.First = true, t.Checks <= 2 // one slow probe is not contention
				break
			}
		}
		return t, nil
	}
}

// alone is an honest lease: its gain is the share of contended verdicts.
func alone(proven bool) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		l, t := newLease(w, proven), play.Trial{First: true, Caught: true}
		alarms := 0.0
		for {
			v, goes := l.probe(func(time.Duration) float64 { return 1 })
			if !goes {
				break
			}
			t.Checks++
			if v == exclusive.Contended {
				alarms++
			}
		}
		t.Gain = alarms / float64(max(t.Checks, 1))
		return t, nil
	}
}

// A card that works for others while it is leased, between audits. The buyer's probes find it; its program keeps its
// results.
var contendedKinds = []play.Kind{
	{Name: "contended", Threat: 14, What: "a leased card serves another client from some moment on",
		Try: contends(1, true)},
	{Name: "contended-new", Threat: 14, What: "the same, of a card without known audits",
		Limit: "its initial speed is the only reference", Try: contends(1, false)},
	{Name: "contended-third", Threat: 14, What: "another client has a third of a leased card",
		Limit: "a part that is less than two fifths", Try: contends(0.5, true)},
	{Name: "leased", Threat: 14, What: "honest leases of a day, probed", Honest: true, Try: alone(true),
		Gain: play.Gain{What: "share of probes of honest leases with a verdict of contention, audits known",
			Most: play.MaxPerAudit}},
	{Name: "leased-new", Threat: 14, What: "the same, of cards without known audits", Honest: true,
		Try: alone(false), Gain: play.Gain{What: "the same, no audit known", Most: play.MaxPerAudit}},
}
