package demo

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet"
)

// watch follows the job as its user would.
type watch struct {
	demo  *demo
	round int
	began time.Time
	ranks map[int]record.Step // last start of each rank
	err   error
}

func (w *watch) step(ctx context.Context, s record.Step) {
	d := w.demo
	who := d.name(s.Provider)
	switch s.Kind {
	case record.StepQuoted:
		d.say("   quote from %s by %-6s after %6.1f ms: %s per unit-hour",
			who, s.Route, float64(s.Took)/float64(time.Millisecond), s.Price)
	case record.StepChosen:
		if w.began.IsZero() {
			d.say("   rank %d goes to %s (%s route)", *s.Rank, who, s.Route)
		} else {
			d.say("   rank %d moves to %s (%s route)", *s.Rank, who, s.Route)
		}
	case record.StepLeased:
		d.say("   leases signed by both sides and prepaid for one interval, %.0f ms after the order",
			float64(s.Took)/float64(time.Millisecond))
		if w.began.IsZero() {
			w.began = time.Now()
			d.title("4. Training: every round each worker trains on its shard, the buyer's side averages")
			r := d.report.Reference
			d.say("   round  bits/byte   (order 0 %.3f, order 1 %.3f, order 2 %.3f)", r.Order0, r.Order1, r.Order2)
		}
	case record.StepStarted:
		w.ranks[*s.Rank] = s
		if w.round == demoKillIn && len(w.ranks) == demoWorkers && d.report.Killed == nil {
			w.kill()
		}
	case record.StepExited:
		_ = d.bar.Add(1)
	case record.StepLost:
		reason, _, _ := strings.Cut(s.Detail, "\n")
		d.say("          rank %d lost %s: %s", *s.Rank, who, reason)
	case record.StepRound:
		clear(w.ranks)
		w.round++
	}
}

// kill ends the provider of rank 1 with SIGKILL, in the middle of its work.
func (w *watch) kill() {
	d := w.demo
	victim := w.ranks[1].Provider
	for i, p := range d.net.Providers() {
		if p.Key.String() != victim {
			continue
		}
		if err := p.Kill(); err != nil {
			w.err = err
			return
		}
		d.report.Killed = &Killed{Name: p.Name, Key: victim, Rank: 1, Round: w.round}
		d.report.Peers[i].Killed = true
		d.say("          %s is killed with SIGKILL while it works on rank 1 of round %d", p.Name, w.round+1)
	}
}

// change prints the figure of every finished round.
func (w *watch) change(ctx context.Context, j record.Job) {
	d := w.demo
	if j.Round <= len(d.report.Rounds) {
		return
	}
	m, err := d.metrics(ctx, j.Carry.CID)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	took := time.Since(w.began)
	w.began = time.Now()
	d.report.Rounds = append(d.report.Rounds, Round{Round: j.Round, BitsPerByte: m, Seconds: testnet.Seconds(took),
		Weights: j.Carry.CID})
	d.say("   %5d  %9.4f   %5.1f s", j.Round, m, took.Seconds())
}
