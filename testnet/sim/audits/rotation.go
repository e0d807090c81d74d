package audits

import (
	"time"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// One card answers for several identities in sequence: through the window, or as fast as it can at the window's
// instant. The first identity rotates, or stays the same.
//
//	instant ── products ─ walk ─ fill… ── products of all others ─ …fill ─ walk ─ fill ─ walk ─▶
//	           of the first                                        of the second  of the third

// turn is the delay of an identity's audit by other identities on the card.
type turn struct {
	product, walk time.Duration
	second        time.Duration // from its beginning to its request for the second nonce
}

// turns returns the delays of k identities on a card that answers for all of them at one instant. They begin at these
// times and request their second nonce as early as the walk's deadline and some spare time allow.
func (u *unit) turns(begin []time.Duration, spare uint64) []turn {
	product, walk := u.hardware.Multiplies(u.shape), u.hardware.Walks(u.walk, sim.Whole)
	fill := u.hardware.Fills(u.walk.Cells, u.walk.Work)
	_, deadline := u.floor.Deadlines(u.shape, u.walk)
	out, done := make([]turn, len(begin)), make([]time.Duration, len(begin))
	finished := func(i int, at time.Duration) {
		asks := max(done[i], at-time.Duration(deadline+spare)*time.Microsecond)
		out[i].second, out[i].walk = asks-begin[i], at-asks-walk
	}
	done[0] = begin[0] + product
	at := done[0] + walk
	finished(0, at)
	if len(begin) == 1 {
		return out
	}
	ahead := min(max(begin[1]-at, 0), fill) // of the second dataset, before the second may begin
	for i, b := range begin[1:] {
		at = max(at, b) + product
		done[i+1], out[i+1].product = at, at-b-product
	}
	for i := range begin[1:] {
		at += fill - ahead + walk
		ahead = 0
		finished(i+1, at)
	}
	return out
}

// inOne is the number of identities that a card of a class can answer for at one instant, with correct clocks and the
// largest apparent difference.
func inOne(c sim.Class) int {
	u := (&unit{hardware: c}).claims(c)
	product, _ := u.floor.Deadlines(u.shape, u.walk)
	width := instants.Width(u.class)
	begin := []time.Duration{-slotsLast(width.Early)}
	for {
		begin = append(begin, slotsLast(width.Late))
		last := u.turns(begin, audit.Allowance)[len(begin)-1]
		took := last.product + u.hardware.Multiplies(u.shape)
		far := time.Duration(audit.MaxTrip) * time.Microsecond
		if took > time.Duration(product+audit.Allowance)*time.Microsecond+far ||
			last.second > time.Duration(audit.Within(u.class, product))*time.Microsecond+far {
			return len(begin) - 1
		}
	}
}

// sharpest returns the cards that can answer for one identity at an instant, and the others.
func sharpest() (one, more []sim.Class) {
	for _, c := range sim.GPUs {
		if inOne(c) == 1 {
			one = append(one, c)
		} else {
			more = append(more, c)
		}
	}
	return one, more
}

// shared is one card behind several identities, each with its own standing.
type shared struct {
	units  []*unit
	stands []audit.Standing
}

func newShared(w *play.World, c sim.Class, n int) *shared {
	s := &shared{stands: make([]audit.Standing, n)}
	first := honest(w, c)
	for range n {
		u := *first
		s.units = append(s.units, &u)
	}
	return s
}

// step has all identities answer in a window, and returns the number of sellable ones.
func (s *shared) step(window int) (listed int) {
	for i, u := range s.units {
		x := &s.stands[i]
		if *x = x.Step(u.play(window, x.CommitteeSize())); x.State == audit.Listed {
			listed++
		}
	}
	return listed
}

// play watches a card for Horizon windows. It is caught if it cannot sell more than one unit in the last quarter of
// them. Its gain is the mean number of sellable units beyond one.
func (s *shared) play(order func(window int)) play.Trial {
	var t play.Trial
	t.Caught = true
	for n := range play.Horizon {
		order(n)
		listed := s.step(n)
		t.Checks += len(s.units)
		t.Gain += float64(listed-1) / play.Horizon
		if n == 0 {
			t.First = listed <= 1
		}
		if n >= play.Horizon*3/4 {
			t.Caught = t.Caught && listed <= 1
		}
	}
	return t
}

// through answers for k identities in turn through each window, with a different first identity each time.
func through(k int) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		s := newShared(w, anyGPU(w), k)
		t := s.play(func(window int) {
			for i, u := range s.units {
				u.from = time.Duration((i+window)%k) * slotsLast(instants.Slots) / time.Duration(2*k)
			}
		})
		return t, nil
	}
}

// atOnce answers for k identities at the instant, in sequence, as fast as the card can.
func atOnce(k int, cards []sim.Class) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		s := newShared(w, cards[w.R.IntN(len(cards))], k)
		// it uses a half to all of that: near the ends, some members' clocks show a late beginning
		width := instants.Width("gpu")
		part := 0.5 + 0.5*w.R.Float64()
		early := -time.Duration(part * float64(slotsLast(width.Early)))
		late := time.Duration(part * float64(slotsLast(width.Late)))
		begin := []time.Duration{early}
		for range k - 1 {
			begin = append(begin, late)
		}
		turns := s.units[0].turns(begin, 0) // hashing takes the allowance
		same := w.R.IntN(2)                 // whether the first identity is always the same
		return s.play(func(window int) {
			for i, u := range s.units {
				place := (i + same*window) % k
				u.from, u.turn = begin[place], turns[place]
			}
		}), nil
	}
}

// rotationKinds computes the cards of the kinds. It is not a package variable, so that a program without simulation
// does not compute them.
func rotationKinds() []play.Kind {
	one, more := sharpest()
	kinds := []play.Kind{
		{Name: "rotation-2", What: "one card answers for 2 identities in turn through each window", Try: through(2),
			Real: lateRecord},
		{Name: "rotation-3", What: "for 3", Try: through(3)},
		{Name: "rotation-8", What: "for 8", Try: through(8)},
		{Name: "rotation-at-once-2", What: "for 2 at the instant, in sequence, as fast as it can",
			Try: atOnce(2, one)},
		{Name: "rotation-at-once-3", What: "for 3", Try: atOnce(3, one)},
		{Name: "rotation-at-once-8", What: "for 8", Try: atOnce(8, one)},
		{Name: "rotation-refill", What: "for 2, an RTX 4090, which fills its memory in two seconds",
			Limit: "it may do so within the difference of clocks (see shortfalls)", Try: atOnce(2, more)},
	}
	for i := range kinds {
		if kinds[i].Threat = 5; kinds[i].Limit == "" {
			kinds[i].Gain = play.Gain{What: "sellable units of a card beyond the first"}
		}
	}
	return kinds
}

// lateRecord is correct except for its beginning.
func lateRecord(i int) error {
	return refused(i, audit.RuleInstant, func(c *audittest.Case) {
		c.Verdict = func(v *audit.Verdict) { v.Slot += 20 }
	}, nil, func(c audittest.Case, r audit.Record) error {
		return r.CheckInstant(c.Instants(), "")
	})
}
