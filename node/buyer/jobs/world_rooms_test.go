package jobs_test

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// stepGang continues a gang.
func (w *world) stepGang(i int) {
	g := w.gangs[i]
	answer := func(ev jobs.Event) {
		w.gangs = slices.Delete(w.gangs, i, i+1)
		w.post(ev)
	}
	dropped := jobs.GangFailed{Gang: g.Gang, Why: jobs.GangDropped, Reason: "cancelled"}
	switch {
	case g.cancelled && !w.coin("formed all the same", 3):
		answer(dropped)
	case !g.placed:
		order := market.OrderID{byte(g.Gang), byte(g.Gang >> 8), 1}
		if err := w.step(jobs.OrderPlaced{Gang: g.Gang, Order: order}); err != nil {
			answer(dropped)
			return
		}
		g.placed = true
		w.place(g.OrderGang)
	case w.coin("gang fails", 3):
		failed := jobs.GangFailed{Gang: g.Gang, Why: jobs.GangShort, Reason: "short"}
		if w.coin("unfit", 6) {
			failed.Why = jobs.GangUnfit
		}
		answer(failed)
	default:
		formed := jobs.GangFormed{Gang: g.Gang}
		for _, seat := range g.Seats {
			formed.Leases = append(formed.Leases, w.newLease(seat.Rank, seat.Epoch, g.Slots).Lease)
		}
		answer(formed)
	}
}

// stepLease continues a lease.
func (w *world) stepLease(l *worldLease) {
	last := !slices.ContainsFunc(w.leases, func(o *worldLease) bool { return o.Chain == l.Chain && o.End > l.End })
	switch {
	case !l.Open:
	case l.ended:
		l.Open, l.Usable, l.Most = false, false, l.Most/3
		w.post(jobs.LeaseCost{Lease: l.ID, Most: l.Most, Settled: true})
	case w.now.Slot >= l.End:
		l.Open, l.Usable = false, false
		w.post(jobs.LeaseCost{Lease: l.ID, Most: l.Most, Settled: true})
		if last {
			w.lose(l.Chain, jobs.CauseExpired)
		}
	case w.coin("lease is lost", 30):
		causes := []jobs.Cause{jobs.CauseDefaulted, jobs.CauseCondemned, jobs.CauseVoid}
		w.lose(l.Chain, rapid.SampledFrom(causes).Draw(w.t, "cause"))
	}
}

func (w *world) lose(chain market.LeaseID, cause jobs.Cause) {
	for _, l := range w.leases {
		if l.Chain == chain {
			l.Usable = false
		}
	}
	w.halt(chain)
	w.post(jobs.LeaseLost{Chain: chain, Cause: cause, Reason: "lost"})
}

// stepRenewal continues a renewal.
func (w *world) stepRenewal(i int) {
	e := w.renewing[i]
	w.renewing = slices.Delete(w.renewing, i, i+1)
	var of *worldLease
	for _, l := range w.leases {
		if l.Chain == e.Chain && l.End == e.Until { // signed before
			w.post(jobs.LeaseRenewed{Of: e.Of, Next: l.Lease})
			return
		}
		if l.ID == e.Of {
			of = l
		}
	}
	if of == nil || !of.Open || !of.Usable || w.coin("renewal refused", 3) {
		w.post(jobs.RenewalRefused{Of: e.Of, Reason: "no"})
		return
	}
	next := w.newLease(of.Rank, of.Epoch, uint64(e.Until-of.End))
	next.Chain, next.Provider, next.End = of.Chain, of.Provider, e.Until
	if next.Most != e.Cap {
		w.fatalf("the successor of a lease costs %d, the renewal says %d", next.Most, e.Cap)
	}
	w.post(jobs.LeaseRenewed{Of: e.Of, Next: next.Lease})
}

// stepExec continues an execution, as far as the run room follows it.
func (w *world) stepExec(k *worldExec) {
	if !w.follows[k.Exec] {
		return
	}
	switch {
	case k.ended && k.stopping:
		w.post(jobs.ExecutionExited{Exec: k.Exec, Exit: jobs.Exit{Code: 143}})
	case k.ended:
		w.post(jobs.ExecutionExited{Exec: k.Exec})
	case k.running && k.stopping && !w.coin("does not stop", 5):
		k.running, k.ended = false, true
		w.post(jobs.ExecutionExited{Exec: k.Exec, Exit: jobs.Exit{Code: 137, Reason: "killed", Broken: true}})
	case k.running && w.coin("silent", 10):
		w.post(jobs.ProviderSilent{Exec: k.Exec})
	case k.running && w.coin("unhealthy", 15):
		w.post(jobs.ExecutionSeen{Exec: k.Exec, Stage: jobs.StageUnhealthy})
	case k.running && w.coin("checkpoint", 15):
		w.post(jobs.CheckpointKept{Exec: k.Exec, Number: 1, File: jobs.File{CID: "k"}})
	case k.running && !w.kind && w.pick("progress", 4) > 0:
		stage := []jobs.Stage{jobs.StagePulling, jobs.StagePulled, jobs.StageHealthy}[w.pick("stage", 3)]
		w.post(jobs.ExecutionSeen{Exec: k.Exec, Stage: stage})
	case k.running:
		w.post(jobs.ExecutionSeen{Exec: k.Exec, Stage: jobs.StageHealthy})
		if c := w.s.Params.Cluster; k.Rank == 0 || c == nil || !c.HeadEnds || w.coin("a member exits", 3) {
			w.exit(k)
		}
	}
}

func (w *world) exit(k *worldExec) {
	k.running, k.ended = false, true
	var exit jobs.Exit
	if w.coin("exits ill", 3) {
		exit = rapid.SampledFrom([]jobs.Exit{
			{Code: 1}, {Code: 1, Reason: "image", Hopeless: true}, {Code: 1, Reason: "lost", Broken: true},
		}).Draw(w.t, "exit")
	}
	w.post(jobs.ExecutionExited{Exec: k.Exec, Exit: exit})
}
