package jobs_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// checks hold the safety properties over a world, event by event:
//
//	S1  One chain per rank and epoch. A rank is ordered anew only after EndLease of its chains; epochs never repeat.
//	S2  Under one lease, execution n+1 is started only after n ended.
//	S3  From Stopping on: no order, start or renewal. Never a start under an ended chain.
//	S4  Each OrderGang, RenewLease and BuyReplica leaves Promised within the budget.
//	S5  Leases formed for an unwanted gang are ended in the same Step.
//	S6  Without command: only CancelGang, LeaveLeases, AcquireCommand, Answer and Note.
//	S7  Phases go forward, but Reducing to Working. An outcome changes once at most, to verify.
//	S8  One plan version, one membership; versions and the epochs of returning ranks grow.
//	S9  CloseAccount with no open lease; Ended after counted, released, anchored, judged.
//	S10 Step leaves its receiver alone and is deterministic.
//	S11 S1 to S9 hold across crashes at any effect.
//	S12 A chain is ended only when no rank holds it, or the job settles.
//	R2 and R5 to R8 as the package comment has them. A stop that was accepted without command is carried out with it.
//	L2  A job that waits for no answer has a deadline, and no deadline is in the past.
type checks struct {
	w       *world
	orders  map[uint32]uint32 // highest epoch that was placed, by rank
	ending  map[market.LeaseID]bool
	known   map[market.LeaseID]bool // leases that the core was told
	plans   map[uint64][]seat
	most    market.Amount // highest budget ever
	version uint64
	before  market.Amount // budget before a scale-up
	stop    bool          // a stop was accepted
}

// seat is one member of a plan.
type seat struct {
	rank, epoch uint32
	lease       market.LeaseID
}

func newChecks(w *world) checks {
	return checks{
		w: w, orders: map[uint32]uint32{}, ending: map[market.LeaseID]bool{}, known: map[market.LeaseID]bool{},
		plans: map[uint64][]seat{},
	}
}

// repeatable checks S10.
func (c *checks) repeatable(ev jobs.Event, next jobs.State, fx []jobs.Effect, err error) {
	w := c.w
	before := jobs.DeepCopy(w.s)
	again, fx2, err2 := w.s.Step(w.now, ev)
	if !reflect.DeepEqual(before, w.s) {
		w.fatalf("S10: Step changed its receiver at %T", ev)
	}
	if !reflect.DeepEqual(next, again) || !reflect.DeepEqual(fx, fx2) || fmt.Sprint(err) != fmt.Sprint(err2) {
		w.fatalf("S10: Step has two results for %T", ev)
	}
}

// check holds one Step to the properties.
func (c *checks) check(was jobs.State, ev jobs.Event, next jobs.State, fx []jobs.Effect) {
	c.most = max(c.most, next.Params.Budget)
	c.learn(ev)
	for i, e := range fx {
		c.effect(was, next, e, fx[i+1:])
		if next.Command.Lost {
			switch e.(type) {
			case jobs.CancelGang, jobs.LeaveLeases, jobs.AcquireCommand, jobs.Answer, jobs.Note:
			default:
				c.w.fatalf("S6: %T while another peer supervises", e)
			}
		}
	}
	c.unwanted(ev, next)
	c.rules(was, ev, next)
	c.progress(was, ev, next)
	c.plan(was, next, fx)
	c.ledger()
	c.waits(next)
}

// learn notes facts that an event brings.
func (c *checks) learn(ev jobs.Event) {
	var leases []jobs.Lease
	switch ev := ev.(type) {
	case jobs.GangFormed:
		leases = ev.Leases
	case jobs.LeaseRenewed:
		leases = []jobs.Lease{ev.Next}
	case jobs.Recovered:
		leases = ev.Leases
	case jobs.CommandGranted:
		leases = ev.Leases
	}
	for _, l := range leases {
		c.known[l.ID] = true
	}
}

func (c *checks) effect(was, next jobs.State, e jobs.Effect, later []jobs.Effect) {
	w := c.w
	// Within a Step, an order or start may come before the end of the job: it is taken back at once.
	late := func(back func(jobs.Effect) bool) bool {
		return was.Phase >= jobs.Stopping || next.Phase >= jobs.Stopping && !slices.ContainsFunc(later, back)
	}
	switch e := e.(type) {
	case jobs.OrderGang:
		c.ordered(e)
		c.affordable(was, next, e)
		if next.Phase < jobs.Stopping && slices.ContainsFunc(next.Leases, func(l jobs.Lease) bool { return l.Ending }) {
			w.fatalf("R5: an order while the cost of a lease is not known")
		}
		if late(func(o jobs.Effect) bool { cancel, ok := o.(jobs.CancelGang); return ok && cancel.Gang == e.Gang }) {
			w.fatalf("S3: an order in phase %s", next.Phase)
		}
	case jobs.RenewLease:
		c.affordable(was, next, e)
		if late(func(o jobs.Effect) bool { end, ok := o.(jobs.EndLease); return ok && end.Chain == e.Chain }) {
			w.fatalf("S3: a renewal in phase %s", next.Phase)
		}
	case jobs.BuyReplica:
		c.affordable(was, next, e)
	case jobs.EndLease:
		c.ending[e.Chain] = true
		held := slices.ContainsFunc(next.Ranks, func(r jobs.Rank) bool { return r.Lease == e.Chain })
		if held && next.Phase < jobs.Settling {
			w.fatalf("S12: a chain in use is ended: %s", e.Reason)
		}
	case jobs.StartExecution:
		c.started(e)
		if late(func(o jobs.Effect) bool { stop, ok := o.(jobs.StopExecution); return ok && stop.Exec == e.Exec }) {
			w.fatalf("S3: a start in phase %s", next.Phase)
		}
	case jobs.CloseAccount:
		for _, l := range w.leases {
			if l.Open {
				w.fatalf("S9: the account is closed while a lease of rank %d is open", l.Rank)
			}
		}
	case jobs.Answer:
		if e.Req == 0 {
			w.fatalf("an answer to nobody: %v", e.Err)
		}
	}
}

func (c *checks) ordered(e jobs.OrderGang) {
	w := c.w
	for _, s := range e.Seats {
		if s.Epoch <= c.orders[s.Rank] {
			w.fatalf("S1: rank %d is ordered under epoch %d, epoch %d was placed", s.Rank, s.Epoch, c.orders[s.Rank])
		}
		for _, l := range w.leases {
			if l.Rank == s.Rank && l.Open && c.known[l.ID] && !c.ending[l.Chain] {
				w.fatalf("S1: rank %d is ordered while its lease of epoch %d is not ended", s.Rank, l.Epoch)
			}
		}
	}
	if !e.Until.After(w.now.Time) {
		w.fatalf("L2: an order that is over at once")
	}
}

// place notes that an order leaves the peer.
func (c *checks) place(e jobs.OrderGang) {
	for _, s := range e.Seats {
		if s.Epoch <= c.orders[s.Rank] {
			c.w.fatalf("S1: epoch %d of rank %d is placed twice", s.Epoch, s.Rank)
		}
		c.orders[s.Rank] = s.Epoch
	}
}

func (c *checks) affordable(was, next jobs.State, e jobs.Effect) {
	if p, b := next.Promised(), max(was.Params.Budget, next.Params.Budget); p > b {
		c.w.fatalf("S4: %d of %d are promised after %T", p, b, e)
	}
}

func (c *checks) started(e jobs.StartExecution) {
	w := c.w
	if c.ending[e.Lease] {
		w.fatalf("S3: rank %d is started under a chain that was ended", e.Rank)
	}
	for _, k := range w.execs {
		if k.Lease == e.Lease && k.Seq < e.Seq && !k.ended {
			w.fatalf("S2: execution %d of rank %d is started while %d may run", e.Seq, e.Rank, k.Seq)
		}
	}
	w.exec(e.Exec)
}

// unwanted checks S5.
func (c *checks) unwanted(ev jobs.Event, next jobs.State) {
	formed, ok := ev.(jobs.GangFormed)
	if !ok || next.Command.Lost {
		return
	}
	for _, l := range formed.Leases {
		held := slices.ContainsFunc(next.Ranks, func(r jobs.Rank) bool { return r.Lease == l.Chain })
		if !held && !c.ending[l.Chain] {
			c.w.fatalf("S5: the lease of rank %d is neither held nor ended", l.Rank)
		}
	}
}

// rules checks R2, R6 to R8, and that stops are carried out.
func (c *checks) rules(was jobs.State, ev jobs.Event, next jobs.State) {
	w := c.w
	used := next.Outcome.Code == jobs.CodePayment && strings.HasPrefix(next.Outcome.Reason, "payment.budget")
	if used && was.Outcome.Code == 0 && len(next.Gangs)+len(next.Renewals) > 0 {
		w.fatalf("R6: the budget is used up while an answer may free some of it")
	}
	if _, ok := ev.(jobs.ScaleRequested); ok && was.Scale == nil && next.Scale != nil {
		c.before = was.Params.Budget
	}
	sc := was.Scale
	failed := sc != nil && sc.Target > sc.From && next.Scale == nil && len(next.Ranks) == int(sc.From)
	if failed && next.Params.Budget != c.before {
		w.fatalf("R7: the budget is %d after a failed scale-up, %d before", next.Params.Budget, c.before)
	}
	if x, ok := execOf(ev); ok && int(x.Rank) < min(len(was.Ranks), len(next.Ranks)) {
		r := was.Ranks[x.Rank]
		lost := next.Ranks[x.Rank].Losses > r.Losses && was.Scale == nil
		renewing := slices.ContainsFunc(was.Renewals, func(n jobs.Renewal) bool { return n.Chain == r.Lease })
		used := r.LostBy == jobs.CauseExpired && r.Unextended == "" && !renewing
		if lost && used && next.Outcome.Code != jobs.CodePayment {
			w.fatalf("R8: rank %d used its lease up, and the outcome is %v", x.Rank, next.Outcome)
		}
	}
	if _, ok := ev.(jobs.CommandGranted); ok {
		for _, g := range was.Gangs {
			kept := func(o jobs.Gang) bool { return o.ID == g.ID }
			if !slices.ContainsFunc(next.Gangs, kept) {
				w.fatalf("R2: gang %d is forgotten, and not answered", g.ID)
			}
		}
	}
	if _, ok := ev.(jobs.StopRequested); ok {
		c.stop = true
	}
	if c.stop && !next.Command.Lost && next.Phase < jobs.Stopping {
		w.fatalf("a stop was accepted, and the job is %s", next.Phase)
	}
}

// execOf returns the execution that an event ends.
func execOf(ev jobs.Event) (jobs.Exec, bool) {
	switch ev := ev.(type) {
	case jobs.ExecutionExited:
		return ev.Exec, true
	case jobs.ExecutionLost:
		return ev.Exec, true
	case jobs.OutputsGathered:
		return ev.Exec, true
	}
	return jobs.Exec{}, false
}

// progress checks S7 and S9.
func (c *checks) progress(was jobs.State, ev jobs.Event, next jobs.State) {
	w := c.w
	back := next.Phase < was.Phase && !(was.Phase == jobs.Reducing && next.Phase == jobs.Working)
	if back || next.Round < was.Round {
		w.fatalf("S7: phase %s after %s, round %d after %d", next.Phase, was.Phase, next.Round, was.Round)
	}
	changed := was.Phase >= jobs.Stopping && next.Outcome != was.Outcome
	if changed && (was.Outcome.Result != jobs.ResultSucceeded || next.Outcome.Code != jobs.CodeVerify) {
		w.fatalf("S7: outcome %v after %v at %T", next.Outcome, was.Outcome, ev)
	}
	checking := next.Outcome.Result == jobs.ResultSucceeded || next.Outcome.Code == jobs.CodeVerify
	a := next.Account
	settled := a.Counted && a.Released && a.Anchored && !(checking && slices.Contains(next.Judged, false))
	if next.Phase == jobs.Ended && !settled {
		w.fatalf("S9: ended with %+v, judged %v", a, next.Judged)
	}
	for i := range min(len(was.Ranks), len(next.Ranks)) {
		r, k := was.Ranks[i], next.Ranks[i]
		if k.Epoch < r.Epoch || k.Losses < r.Losses || k.Restarts < r.Restarts {
			w.fatalf("S8: rank %d: epoch, losses or restarts fall", i)
		}
		if r.State == jobs.RankDone && k.State != jobs.RankDone && was.Round == next.Round {
			w.fatalf("S7: rank %d is %s after it was done", i, k.State)
		}
	}
}

// plan checks S8.
func (c *checks) plan(was, next jobs.State, fx []jobs.Effect) {
	w := c.w
	if next.Params.Cluster == nil {
		return
	}
	now, before := membersOf(next), membersOf(was)
	counted := slices.Equal(now, before) || next.Plan.Version == was.Plan.Version+1
	if next.Phase < jobs.Stopping && !counted {
		w.fatalf("S8: members %v became %v, version %d became %d", before, now, was.Plan.Version, next.Plan.Version)
	}
	for _, e := range fx {
		p, ok := e.(jobs.PublishPlan)
		if !ok {
			continue
		}
		if known, ok := c.plans[p.Version]; ok && !slices.Equal(known, membersOf(next)) {
			w.fatalf("S8: version %d is %v and %v", p.Version, known, membersOf(next))
		}
		if p.Version < c.version || p.Version != next.Plan.Version {
			w.fatalf("S8: version %d after %d", p.Version, c.version)
		}
		c.version, c.plans[p.Version] = p.Version, membersOf(next)
	}
}

func membersOf(s jobs.State) (out []seat) {
	for i, r := range s.Ranks {
		if !r.Joining && !r.Lease.IsZero() {
			out = append(out, seat{uint32(i), r.Epoch, r.Lease})
		}
	}
	return out
}

// ledger checks the world's own books: what all leases and replicas can cost, and one chain for an epoch.
func (c *checks) ledger() {
	w := c.w
	var sum market.Amount
	chains := map[[2]uint32]market.LeaseID{}
	for _, l := range w.leases {
		sum = sum.Plus(l.Most)
		key := [2]uint32{l.Rank, l.Epoch}
		if chain, ok := chains[key]; ok && chain != l.Chain {
			w.fatalf("S1: two chains for rank %d epoch %d", l.Rank, l.Epoch)
		}
		chains[key] = l.Chain
	}
	for _, most := range w.spent {
		sum = sum.Plus(most)
	}
	if sum > c.most {
		w.fatalf("S4: leases and replicas can cost %d of %d", sum, c.most)
	}
}

// waits checks L2.
func (c *checks) waits(s jobs.State) {
	w, next := c.w, s.Next()
	if !next.IsZero() && !next.After(w.now.Time) {
		w.fatalf("L2: the next deadline is %v before now", w.now.Time.Sub(next))
	}
	ending := slices.ContainsFunc(s.Leases, func(l jobs.Lease) bool { return l.Ending })
	asked := slices.ContainsFunc(s.Ranks, func(r jobs.Rank) bool {
		return r.Doing == jobs.Gathering || r.Doing == jobs.Reclaiming
	})
	answers := s.Command.Lost || s.Phase == jobs.Engaging || s.Phase == jobs.Reducing || s.Phase >= jobs.Settling ||
		len(s.Gangs) > 0 || len(s.Renewals) > 0 || ending || asked
	if !answers && next.IsZero() {
		w.fatalf("L2: the job waits for nothing in phase %s", s.Phase)
	}
}
