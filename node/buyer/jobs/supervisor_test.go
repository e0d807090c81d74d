package jobs_test

import (
	"errors"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// depose gives the command of a guarded job to another supervisor, which begins from the standing of this one.
func (w *world) depose() {
	if !w.s.Params.Guarded || w.s.Command.Lost || w.s.Phase == jobs.Engaging || w.s.Phase == jobs.Ended {
		return
	}
	w.others++
	w.theirs = nil
	standing := w.disk
	_ = w.step(jobs.CommandLost{Epoch: w.others})
	for range w.pick("acts of another supervisor", 3) {
		s, err := jobs.Decode(standing)
		if err != nil || s.Phase != jobs.Working && s.Phase != jobs.Placing {
			return
		}
		s.Command.Epoch = w.others
		w.act(&s, w.pick("rank", len(s.Ranks)))
		if standing, err = s.Encode(); err != nil {
			w.fatalf("%v", err)
		}
		w.theirs = standing
	}
}

// act does one thing as another supervisor.
func (w *world) act(s *jobs.State, i int) {
	r := &s.Ranks[i]
	switch {
	case r.State == jobs.RankRunning && w.coin("done", 2):
		r.State, r.Outputs = jobs.RankDone, []jobs.File{{Path: "/theirs"}}
		w.halt(r.Lease)
		for _, k := range w.execs {
			k.ended = k.ended || k.Lease == r.Lease
		}
	case w.coin("replaced", 2):
		for _, l := range w.leases {
			if l.Rank == uint32(i) {
				l.ended, l.Usable = true, false
			}
		}
		w.halt(r.Lease)
		l := w.newLease(uint32(i), max(r.Epoch, w.orders[uint32(i)])+1, 100)
		w.orders[uint32(i)] = l.Epoch
		if l.Most > w.left() { // the money of two supervisors is the escrow's concern
			l.Most, l.Open, l.Usable = 0, false, false
		}
		if w.coin("unreported", 2) {
			return
		}
		*r = jobs.Rank{State: jobs.RankLeased, Epoch: l.Epoch, Lease: l.Chain, Provider: l.Provider, Losses: r.Losses + 1}
	}
}

// left is the money that neither supervisor has promised.
func (w *world) left() market.Amount {
	promised := w.s.Promised()
	for _, l := range w.leases {
		promised = promised.Plus(l.Most)
	}
	return w.s.Params.Budget - min(promised, w.s.Params.Budget)
}

// grant gives command to this peer.
func (w *world) grant() {
	w.others += 2
	ev := jobs.CommandGranted{Epoch: w.others, Leases: w.facts()}
	if w.theirs != nil {
		merged, err := jobs.Merge(w.s, w.theirs, true)
		switch {
		case err == nil:
			ev.Theirs = &merged
		case !errors.Is(err, jobs.ErrForeign):
			w.fatalf("merging: %v", err)
		}
	}
	w.post(ev)
}
