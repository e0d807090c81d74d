package jobs_test

import (
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// turn lets one thing happen in any order: rooms and providers are slow, and users and crashes come at any time.
func (w *world) turn() {
	switch n := w.pick("turn", 14); {
	case n <= 2 && len(w.inbox) > 0:
		w.deliver()
	case n <= 5 && len(w.pending) > 0:
		w.carryOut()
	case n == 6 && len(w.gangs) > 0:
		w.stepGang(w.pick("gang", len(w.gangs)))
	case n == 7 && len(w.leases) > 0:
		w.stepLease(w.leases[w.pick("lease", len(w.leases))])
	case (n == 8 || n == 12) && len(w.execs) > 0:
		w.stepExec(w.execs[w.pick("execution", len(w.execs))])
	case n == 9 && len(w.renewing) > 0:
		w.stepRenewal(w.pick("renewal", len(w.renewing)))
	case n == 10:
		w.sleep(time.Duration(rapid.IntRange(1, 5000).Draw(w.t, "ms")) * time.Millisecond)
		_ = w.step(jobs.Ticked{})
	case n == 11 || n == 13:
		w.user()
	}
}

func (w *world) deliver() {
	ev := w.inbox[0]
	w.inbox = w.inbox[1:]
	_ = w.step(ev)
	if w.coin("reported again", 8) {
		_ = w.step(ev)
	}
}

func (w *world) carryOut() {
	e := w.pending[0]
	w.pending = w.pending[1:]
	w.do(e)
}

// user is a request of the API, a crash, or a change of command.
func (w *world) user() {
	budget := w.s.Params.Budget * market.Amount(w.pick("budget", 3))
	switch n := w.pick("user", 24); n {
	case 0:
		_ = w.step(jobs.StopRequested{Req: 1})
	case 1, 2, 3:
		_ = w.step(jobs.ExtendRequested{Req: 2, By: time.Minute, Budget: budget})
	case 4, 5:
		_ = w.step(jobs.PauseRequested{Req: 4, Pause: n == 4})
	case 6, 7, 8:
		w.crash()
	case 9, 10:
		_ = w.step(jobs.JobUse{Busy: n == 9})
	case 11, 12, 13, 14, 15, 16:
		switch {
		case w.s.Params.Cluster != nil:
			_ = w.step(jobs.ScaleRequested{Req: 3, Count: uint32(w.pick("size", 5) + 1), Budget: budget})
		case w.s.Command.Lost && !w.s.Command.Owner:
			w.grant()
		default:
			w.depose()
		}
	}
}

// settleDown runs a world in which everything works until the job is over (L1).
func (w *world) settleDown() {
	w.kind = true
	for i := 0; !w.s.Done() || w.s.Command.Lost; i++ {
		if i > 5000 {
			w.fatalf("L1: the job hangs in %s: %+v\npending %v, inbox %v", w.s.Phase, w.s, w.pending, w.inbox)
		}
		switch {
		case len(w.inbox) > 0:
			w.deliver()
			continue
		case len(w.pending) > 0:
			w.carryOut()
			continue
		case len(w.gangs) > 0:
			w.stepGang(0)
			continue
		case len(w.renewing) > 0:
			w.stepRenewal(0)
			continue
		case w.s.Command.Lost && !w.s.Command.Owner:
			w.grant()
			continue
		}
		for _, k := range w.execs {
			w.stepExec(k)
		}
		for _, l := range w.leases {
			w.stepLease(l)
		}
		if len(w.inbox)+len(w.pending) > 0 {
			w.sleep(50 * time.Millisecond)
			continue
		}
		wait := time.Second
		if next := w.s.Next(); !next.IsZero() {
			wait = next.Sub(w.now.Time)
		}
		w.sleep(wait)
		_ = w.step(jobs.Ticked{})
	}
	for _, l := range w.leases {
		if l.Open {
			w.fatalf("L1: a lease of rank %d is open after the job", l.Rank)
		}
	}
}

// TestWorlds runs jobs in random worlds; see checks.
func TestWorlds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 300).Draw(t, "turns") {
			w.turn()
		}
		if rapid.Bool().Draw(t, "crash at the end") {
			w.crash()
		}
		w.settleDown()
	})
}
