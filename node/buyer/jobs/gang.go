package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// gangs is the part of a step that orders leases.
type gangs struct{ *step }

// ready returns the waiting ranks that can be ordered now.
func (t gangs) ready() (out []uint32) {
	for i := range t.s.Ranks {
		r := &t.s.Ranks[i]
		if r.State == RankWaiting && r.Doing == Idle && r.NotBefore.IsZero() && !t.s.leaving(i) {
			out = append(out, uint32(i))
		}
	}
	// While the cost of a lease is unknown, so is the remaining budget (R5).
	if len(out) > 0 && slices.ContainsFunc(t.s.Leases, func(l Lease) bool { return l.Ending }) {
		return nil
	}
	return out
}

// mostOrders bounds the concurrent orders for lost ranks of a job. Ranks lost meanwhile wait, and are ordered together.
// Each order goes to every provider, so after the loss of most ranks there would be one request per rank to each.
const mostOrders = 4

// replace orders lost ranks, and joining ranks together.
func (t gangs) replace() {
	var joining, lost []uint32
	for _, i := range t.ready() {
		if t.s.Ranks[i].Joining {
			joining = append(joining, i)
		} else {
			lost = append(lost, i)
		}
	}
	for _, ranks := range t.grouped(lost) {
		if t.s.Phase != Working || !t.single() && len(t.s.Gangs) >= mostOrders {
			break
		}
		t.order(ranks)
	}
	if len(joining) > 0 && t.s.Phase == Working {
		t.order(joining)
	}
}

// grouped returns the groups of lost ranks that are ordered together. A gang is all or none, so after each failure of a
// gang the next orders are half as large.
func (t gangs) grouped(lost []uint32) (out [][]uint32) {
	tries := func(i uint32) uint32 { return t.s.Ranks[i].tries }
	slices.SortStableFunc(lost, func(a, b uint32) int { return cmp.Compare(tries(a), tries(b)) })
	for len(lost) > 0 {
		n := 1
		for n < len(lost) && tries(lost[n]) == tries(lost[0]) {
			n++
		}
		size := max(1, n>>min(tries(lost[0]), 10))
		if t.single() {
			size = 1
		}
		out = slices.AppendSeq(out, slices.Chunk(lost[:n], size))
		lost = lost[n:]
	}
	return out
}

// single reports whether each lost rank has a separate order: members of a cluster, and standbys.
func (t gangs) single() bool { return t.s.Params.Cluster != nil || t.s.Params.Guarded }

// order orders leases for ranks, all or none. If the budget does not pay for them, it waits for possible refunds (R6);
// if none can, the scale-up or the job fails.
func (t gangs) order(ranks []uint32) {
	s := &t.s
	slots, cost, ok := s.allot(t.now.Time, len(ranks))
	switch {
	case ok:
	case len(s.Gangs) > 0 || len(s.Renewals) > 0:
		return
	case s.Ranks[ranks[0]].Joining:
		t.resize().undo(fmt.Errorf("%w: %w", ErrScale, ErrBudget))
		return
	default:
		text := "payment.budget: the remainder does not pay %d leases for one interval"
		t.end(ResultFailed, CodePayment, fmt.Sprintf(text, len(ranks)))
		return
	}
	s.Gang++
	g := Gang{
		ID: s.Gang, Ranks: slices.Clone(ranks), Cap: cost, Extended: s.Extended,
		Whole: s.Params.whole(slots, s.remaining(t.now.Time)),
	}
	seats := make([]Seat, len(ranks))
	for k, i := range ranks {
		r := &s.Ranks[i]
		r.Doing, r.Gang = Ordering, g.ID
		seats[k] = Seat{i, r.Epoch + 1}
		if until := r.Since.Add(s.Params.Queue); g.Until.IsZero() || until.Before(g.Until) {
			g.Until = until
		}
	}
	s.Gangs = append(s.Gangs, g)
	// The money for standbys is set aside before the job starts, and a guardian has no other.
	standby := s.Params.Guarded && !(s.Started.IsZero() && s.Command.Owner)
	t.emit(OrderGang{
		Gang: g.ID, Seats: seats, Slots: slots, Cap: cost, Until: g.Until,
		Standby: standby, Avoid: slices.Clone(s.Avoid),
	})
}

// find returns a gang in progress, or nil.
func (t gangs) find(id GangID) *Gang {
	if i := slices.IndexFunc(t.s.Gangs, func(g Gang) bool { return g.ID == id }); i >= 0 {
		return &t.s.Gangs[i]
	}
	return nil
}

// cancel drops a gang. Its money stays set aside until it is answered.
func (t gangs) cancel(g *Gang, reason string) {
	if g != nil && !g.Dropped {
		g.Dropped = true
		t.emit(CancelGang{g.ID, reason})
	}
}

// close removes a gang that was answered, and makes its ranks idle.
func (t gangs) close(id GangID) (g Gang, ok bool) {
	i := slices.IndexFunc(t.s.Gangs, func(g Gang) bool { return g.ID == id })
	if i < 0 {
		return Gang{}, false
	}
	g = t.s.Gangs[i]
	t.s.Gangs = slices.Delete(t.s.Gangs, i, i+1)
	for _, i := range g.Ranks {
		if r := t.seat(g, i); r != nil {
			r.Doing = Idle
		}
	}
	return g, true
}

// seat returns rank i if it waits for gang g, else nil. A dropped gang may name ranks that are gone or ordered again.
func (t gangs) seat(g Gang, i uint32) *Rank {
	if int64(i) >= int64(len(t.s.Ranks)) || t.s.Ranks[i].State != RankWaiting || t.s.Ranks[i].Gang != g.ID {
		return nil
	}
	return &t.s.Ranks[i]
}

func (ev OrderPlaced) apply(t *step) error {
	g := t.gangs().find(ev.Gang)
	switch {
	case g == nil || g.Dropped:
		return ErrDropped
	case ev.Order.IsZero() || !g.Order.IsZero() && g.Order != ev.Order:
		return fmt.Errorf("%w: gang %d: order %s, have %s", ErrEvent, ev.Gang, ev.Order.Short(), g.Order.Short())
	case g.Order == ev.Order:
		return nil
	}
	g.Order, t.s.Placed = ev.Order, max(t.s.Placed, g.ID)
	for _, i := range g.Ranks {
		if r := t.gangs().seat(*g, i); r != nil {
			r.Epoch++
		}
	}
	return nil
}

func (ev OrderPlaced) applyQuiet(*step) error { return ErrDropped }

func (ev GangFormed) apply(t *step) error {
	g, known := t.gangs().close(ev.Gang)
	wanted := known && t.gangs().fills(g, ev.Leases)
	for _, l := range ev.Leases {
		t.leases().learn(l)
		if wanted {
			t.rank(int(l.Rank)).seated(l, g.Whole)
		} else if t.leases().holder(l.Chain) < 0 {
			t.leases().end(l.Chain, "the gang was dropped")
		}
	}
	if !wanted {
		return nil
	}
	t.note(NoteLeased, -1, "order %s: %d leases", g.Order.Short(), len(ev.Leases))
	if t.s.Scale.up() && !slices.ContainsFunc(t.s.Ranks, func(r Rank) bool { return r.Joining }) {
		t.resize().complete(nil)
	}
	if g.Extended != t.s.Extended { // the order is older than the job's time
		t.leases().renew()
	}
	return nil
}

func (ev GangFormed) applyQuiet(t *step) error {
	t.gangs().close(ev.Gang)
	for _, l := range ev.Leases {
		t.leases().learn(l)
	}
	return nil
}

// fills reports whether the leases are one for each seat of a current gang, within its money.
func (t gangs) fills(g Gang, leases []Lease) bool {
	if g.Dropped || g.Order.IsZero() || t.s.Phase >= Stopping || len(leases) != len(g.Ranks) {
		return false
	}
	left := g.Cap
	for k, l := range leases {
		r := t.seat(g, l.Rank)
		twice := slices.ContainsFunc(leases[:k], func(o Lease) bool { return o.Rank == l.Rank })
		if r == nil || twice || r.Epoch != l.Epoch || l.Most > left || l.Chain != l.ID || l.Chain.IsZero() {
			return false
		}
		left -= l.Most
	}
	return true
}

// seated gives the rank its lease.
func (r rankStep) seated(l Lease, whole bool) {
	r.idle()
	r.Whole = whole
	r.State, r.Lease, r.Provider, r.Seq, r.Joining, r.Unextended = RankLeased, l.Chain, l.Provider, 0, false, ""
	if r.NotBefore = (time.Time{}); r.afterHead() {
		r.NotBefore = r.now.Time.Add(headStart)
	}
}

func (ev GangFailed) apply(t *step) error {
	first := t.s.Started.IsZero() && !t.s.late()
	g, known := t.gangs().close(ev.Gang)
	if !known || g.Dropped || t.s.Phase >= Stopping {
		return nil
	}
	t.note(NoteUnplaced, -1, "%s", ev.Reason)
	for _, i := range g.Ranks {
		if r := t.gangs().seat(g, i); r != nil {
			r.tries++
			r.NotBefore, r.unplaced = t.now.Time.Add(t.s.jitter(g.ID, r.tries)), ev.Reason
		}
	}
	if first && ev.Why == GangUnfit {
		t.end(ResultFailed, CodeNoMatch, ev.Reason)
	}
	return nil
}

func (ev GangFailed) applyQuiet(t *step) error {
	t.gangs().close(ev.Gang)
	return nil
}
