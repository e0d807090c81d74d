package sim

import (
	"time"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// One card answers for several identities, one after the other: through the window, or as fast as it can at the window's instant. Which
// of them comes first rotates.
//
//	instant ──┬── products of all ──┬─ walk ─┬─ fill ─ walk ─┬─ fill ─ walk ─▶
//	          first                          second          third

// turn is what an identity's audit takes longer because of others on the card.
type turn struct {
	product, walk time.Duration
	second        time.Duration // from its beginning to when it asks for the second nonce
}

// turns gives how k identities fare on a card that answers for all of them at one instant, when they begin at these times and walk as late
// as they may.
func (u *unit) turns(begin []time.Duration) []turn {
	product, walk := u.hardware.Multiplies(u.shape), u.hardware.Walks(u.walk, sim.Whole)
	fill := u.hardware.Fills(u.walk.Cells, u.walk.Work)
	_, deadline := u.floor.Deadlines(u.shape, u.walk)
	out, done := make([]turn, len(begin)), make([]time.Duration, len(begin))
	var at time.Duration
	for i, b := range begin {
		at = max(at, b) + product
		done[i], out[i].product = at, at-b-product
	}
	for i, b := range begin {
		if i > 0 {
			at += fill
		}
		at += walk
		asks := max(done[i], at-time.Duration(deadline+audit.Allowance)*time.Microsecond)
		out[i].second, out[i].walk = asks-b, at-asks-walk
	}
	return out
}

// inOne is how many identities a card of a class can answer for at one instant, if all clocks are right and it seems as far as may be.
func inOne(c sim.Class) int {
	u := (&unit{hardware: c}).claims(c)
	product, _ := u.floor.Deadlines(u.shape, u.walk)
	width := instants.Width(u.class)
	begin := []time.Duration{-slotsLast(width.Early)}
	for {
		begin = append(begin, slotsLast(width.Late))
		last := u.turns(begin)[len(begin)-1]
		took := last.product + u.hardware.Multiplies(u.shape)
		far := time.Duration(audit.MaxTrip) * time.Microsecond
		if took > time.Duration(product+audit.Allowance)*time.Microsecond+far || last.second > time.Duration(audit.Within(u.class, product))*time.Microsecond+far {
			return len(begin) - 1
		}
	}
}

// shared is one card behind some identities. Each stands for itself.
type shared struct {
	units  []*unit
	stands []audit.Standing
}

func newShared(w *world, c sim.Class, n int) *shared {
	s := &shared{stands: make([]audit.Standing, n)}
	first := honest(w, c)
	for range n {
		u := *first
		s.units = append(s.units, &u)
	}
	return s
}

// step has all answer in a window, and gives how many can be sold after it.
func (s *shared) step(window int) (listed int) {
	for i, u := range s.units {
		x := &s.stands[i]
		if *x = x.Step(u.play(window, x.CommitteeSize())); x.State == audit.Listed {
			listed++
		}
	}
	return listed
}

// play watches a card for Horizon windows. It is caught when it cannot sell more than one unit, and none by taking turns: in the last quarter
// no identity that missed a window of it was listed. What it gains are the units beyond one that it could sell, in the mean.
func (s *shared) play(order func(window int)) trial {
	var t trial
	t.caught = true
	for n := range Horizon {
		order(n)
		listed := s.step(n)
		t.checks += len(s.units)
		t.gain += float64(listed-1) / Horizon
		if n == 0 {
			t.first = listed <= 1
		}
		if n >= Horizon*3/4 {
			t.caught = t.caught && listed <= 1
		}
	}
	return t
}

// through answers for k identities in turn through each window, and begins with another each time.
func through(k int) func(w *world) (trial, error) {
	return func(w *world) (trial, error) {
		s := newShared(w, anyGPU(w), k)
		t := s.play(func(window int) {
			for i, u := range s.units {
				u.from = time.Duration((i+window)%k) * hour / time.Duration(2*k)
			}
		})
		for _, x := range s.stands {
			t.caught = t.caught && x.State != audit.Listed
		}
		return t, nil
	}
}

// atOnce answers for k identities at the instant, one after the other as fast as the card can.
func atOnce(k int) func(w *world) (trial, error) {
	return func(w *world) (trial, error) {
		s := newShared(w, anyGPU(w), k)
		early, late := -slotsLast(instants.Width("gpu").Early)/2, slotsLast(instants.Width("gpu").Late)*2/3 // or clocks tell
		begin := []time.Duration{early}
		for range k - 1 {
			begin = append(begin, late)
		}
		turns := s.units[0].turns(begin)
		return s.play(func(window int) {
			for i, u := range s.units {
				place := (i + window) % k
				u.from, u.turn = begin[place], turns[place]
			}
		}), nil
	}
}

var rotationKinds = func() []Kind {
	kinds := []Kind{
		{Name: "rotation-2", What: "one card answers for 2 identities in turn through each window", try: through(2), real: lateRecord},
		{Name: "rotation-3", What: "for 3", try: through(3)},
		{Name: "rotation-8", What: "for 8", try: through(8)},
		{Name: "rotation-at-once-2", What: "for 2 at the instant, one after the other as fast as it can", try: atOnce(2)},
		{Name: "rotation-at-once-3", What: "for 3", try: atOnce(3)},
		{Name: "rotation-at-once-8", What: "for 8", try: atOnce(8)},
	}
	for i := range kinds {
		kinds[i].Threat, kinds[i].Gain = 5, Gain{What: "units beyond its one that a card could sell"}
	}
	return kinds
}()

// lateRecord is right in all but when it began.
func lateRecord(i int) error {
	return refused(i, audit.RuleInstant, func(c *audittest.Case) {
		c.Verdict = func(v *audit.Verdict) { v.Slot += 20 }
	}, nil, func(c audittest.Case, r audit.Record) error {
		return r.CheckInstant(c.Instants(audit.SlotHash), "")
	})
}
