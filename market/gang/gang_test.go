package gang_test

import (
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0).UTC()

func testParams() gang.Params {
	return gang.Params{Secret: [32]byte{7}, Started: epoch, StepTimeout: 2 * time.Second, ReleaseTimeout: 2 * time.Second,
		Deadline: epoch.Add(20 * time.Second), FundingSlots: 5}
}

func testOrder(count, unitsPer uint32) market.Order {
	return market.Order{ID: market.OrderID{1}, Buyer: sign.Key{99}, Class: "cpu", Count: count, UnitsPer: unitsPer}
}

// overlayKey is a key of somebody; of number 0 one of small order.
func overlayKey(n byte) market.OverlayKey {
	if n == 0 {
		return market.OverlayKey{1}
	}
	return market.OverlayKey{9, n}
}

// world plays the providers and the network: any answer, to anything, in any order, twice or never.
type world struct {
	t        *rapid.T
	g        gang.Gang
	now      lease.Now
	n        int
	asked    map[market.HoldID]gang.Reserve
	heard    map[market.HoldID]bool // good news the gang heard after its last Release of that hold
	formed   []gang.Seat
	failed   int
	signable map[market.HoldID]bool
	payable  map[market.HoldID]bool
	overlay  bool // it is a cluster's

	recruit uint32                 // the last one
	measure gang.Measure           // the last one
	near    map[market.HoldID]bool // the seats that were last said to be near enough; nil: nobody asks
}

func (w *world) step(ev gang.Event) {
	switch ev := ev.(type) {
	case gang.Held:
		w.hear(ev.Rank, ev.Hold)
	case gang.Signed:
		w.hear(ev.Rank, ev.Hold)
	case gang.Activated:
		w.hear(ev.Rank, ev.Hold)
	}
	if ev, ok := ev.(gang.Measured); ok && ev.Round == w.measure.Round && w.g.State() == gang.Measuring {
		w.near = map[market.HoldID]bool{}
		for _, s := range w.measure.Seats {
			w.near[s.Hold] = true
		}
		for _, u := range ev.Unfit {
			delete(w.near, u.Hold)
		}
	}
	wasFinal := w.g.State().Final()
	before := w.g.Seats()
	next, effects, err := w.g.Step(w.now, ev)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.EqualFunc(before, w.g.Seats(), func(a, b gang.Seat) bool { return a.Hold == b.Hold && a.Phase == b.Phase }) {
		w.t.Fatal("safety: Step changed the gang it was called on")
	}
	w.g = next
	w.do(effects, wasFinal)
}

func (w *world) hear(rank uint32, hold market.HoldID) {
	if r, ok := w.asked[hold]; ok && r.Rank == rank {
		w.heard[hold] = true
	}
}

func (w *world) do(effects []gang.Effect, wasFinal bool) {
	for _, e := range effects {
		if _, release := e.(gang.Release); wasFinal && !release {
			w.t.Fatalf("safety: %T after the end", e)
		}
		switch e := e.(type) {
		case gang.Reserve:
			if _, twice := w.asked[e.Hold]; twice {
				w.t.Fatal("safety: a hold id was used twice")
			}
			w.asked[e.Hold] = e
		case gang.Release:
			if w.asked[e.Hold].Provider != e.Provider {
				w.t.Fatal("safety: a release went to another provider")
			}
			delete(w.heard, e.Hold)
		case gang.Measure:
			if e.Round != w.measure.Round+1 || len(e.Seats) != w.n {
				w.t.Fatalf("safety: measure %d of %d seats after measure %d", e.Round, len(e.Seats), w.measure.Round)
			}
			w.all(gang.PhaseHeld, "measured")
			w.measure = e
		case gang.Recruit:
			if e.Round != w.recruit+1 || len(e.Ranks) == 0 {
				w.t.Fatalf("safety: recruit %d for %d ranks after recruit %d", e.Round, len(e.Ranks), w.recruit)
			}
			w.recruit = e.Round
			for _, s := range w.g.Seats() {
				if s.Phase >= gang.PhaseActivating {
					w.t.Fatal("safety: recruits are waited for while a lease may be paid for")
				}
			}
		case gang.Sign:
			w.all(gang.PhaseHeld, "signed")
			for _, s := range w.g.Seats() {
				if w.near != nil && !w.near[s.Hold] {
					w.t.Fatalf("safety: rank %d was not near enough to the others, and a lease was signed", s.Rank)
				}
			}
			w.signable[e.Hold] = true
		case gang.Activate:
			w.all(gang.PhaseSigned, "paid for")
			if !w.signable[e.Hold] {
				w.t.Fatal("safety: paid for before it was signed")
			}
			w.payable[e.Hold] = true
		case gang.Formed:
			w.formed = e.Seats
		case gang.FailedWith:
			w.failed++
			if e.Reason == nil || e.Reason.Error() == "" {
				w.t.Fatal("a failure without a reason")
			}
		}
	}
}

func (w *world) all(least gang.Phase, what string) {
	for _, s := range w.g.Seats() {
		if s.Phase < least {
			w.t.Fatalf("safety: a lease was %s while rank %d was only %s", what, s.Rank, s.Phase)
		}
	}
}

// check is all or nothing: formed with n active leases and nothing else held, or everything released.
func (w *world) check() {
	if !w.g.State().Final() {
		return
	}
	mine := map[market.HoldID]bool{}
	ranks := map[uint32]bool{}
	units := map[market.UnitID]bool{}
	keys := map[market.OverlayKey]bool{}
	for _, s := range w.formed {
		if w.overlay && (keys[s.Overlay] || s.Overlay.Check() != nil) || !w.overlay && !s.Overlay.IsZero() {
			w.t.Fatalf("safety: rank %d has overlay key %s", s.Rank, s.Overlay)
		}
		keys[s.Overlay] = true
		mine[s.Hold], ranks[s.Rank] = true, true
		if s.Phase != gang.PhaseActive || !w.payable[s.Hold] {
			w.t.Fatalf("safety: formed with rank %d %s", s.Rank, s.Phase)
		}
		for _, u := range s.Units {
			if units[u] {
				w.t.Fatal("safety: formed with one unit in two ranks")
			}
			units[u] = true
		}
	}
	switch w.g.State() {
	case gang.Running:
		if len(ranks) != w.n || w.failed != 0 {
			w.t.Fatalf("safety: formed with %d of %d ranks, failed %d times", len(ranks), w.n, w.failed)
		}
	default:
		if w.formed != nil || w.failed != 1 {
			w.t.Fatalf("safety: failed %d times, formed %v", w.failed, w.formed != nil)
		}
	}
	for hold := range w.heard {
		if !mine[hold] {
			w.t.Fatalf("safety: rank %d at %v held something and got no release", w.asked[hold].Rank, w.asked[hold].Provider[0])
		}
	}
}

// TestGangProperties: whatever events come, the gang ends formed with n, or with every member that held or signed anything
// released (safety); it never signs before all are held or pays before all have signed (safety); and by its deadline
// and the releases' it has ended (liveness).
func TestGangProperties(t *testing.T) {
	t.Parallel()
	var running, failed int
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, n: rapid.IntRange(1, 4).Draw(t, "n"), now: lease.Now{Time: epoch, Slot: 1000},
			asked: map[market.HoldID]gang.Reserve{}, heard: map[market.HoldID]bool{},
			signable: map[market.HoldID]bool{}, payable: map[market.HoldID]bool{}}
		var chosen []gang.Member
		for i := range w.n {
			chosen = append(chosen, gang.Member{Rank: uint32(i), Provider: sign.Key{byte(i + 1)}})
		}
		var spares []sign.Key
		for i := range rapid.IntRange(0, 4).Draw(t, "spares") {
			spares = append(spares, sign.Key{byte(rapid.IntRange(1, 20).Draw(t, "spare")), byte(i)})
		}
		var effects []gang.Effect
		params := testParams()
		if rapid.Bool().Draw(t, "recruit") {
			params = recruitParams()
			for i := range chosen {
				if rapid.IntRange(0, 3).Draw(t, "vacant") == 0 {
					chosen[i].Provider = sign.Key{}
				}
			}
		}
		w.overlay = rapid.Bool().Draw(t, "overlay")
		params.Overlay = w.overlay
		if rapid.Bool().Draw(t, "measure") {
			params.MeasureTimeout, w.near = 3*time.Second, map[market.HoldID]bool{}
		}
		w.g, effects = gang.New(testOrder(uint32(w.n), 1), chosen, spares, params)
		w.do(effects, false)
		kindness := rapid.IntRange(0, 10).Draw(t, "kindness")
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			w.step(w.randomEvent(kindness))
			w.check()
		}
		for range 3 {
			w.now.Time = w.now.Time.Add(30 * time.Second)
			w.step(gang.DeadlinePassed{})
		}
		if !w.g.State().Final() {
			t.Fatalf("liveness: still %s after every deadline", w.g.State())
		}
		w.check()
		if w.g.State() == gang.Running {
			running++
		} else {
			failed++
		}
	})
	if running == 0 || failed == 0 {
		t.Errorf("the generator reaches only one end: %d formed, %d failed", running, failed)
	}
}

// key is what the provider of a seat names.
func (w *world) key(s gang.Seat) market.OverlayKey {
	if !w.overlay {
		return market.OverlayKey{}
	}
	return overlayKey(byte(s.Rank) + 1)
}

func (w *world) randomEvent(kindness int) gang.Event {
	t := w.t
	seats := w.g.Seats()
	var seat gang.Seat
	if len(seats) > 0 {
		seat = rapid.SampledFrom(seats).Draw(t, "seat")
	}
	unit := []market.UnitID{{seat.Hold[0], seat.Hold[1], 1}}
	if rapid.IntRange(0, 9).Draw(t, "kind") < kindness {
		switch seat.Phase {
		case gang.PhaseAsked:
			return gang.Held{Rank: seat.Rank, Hold: seat.Hold, Units: unit, Overlay: w.key(seat)}
		case gang.PhaseHeld:
			ev := gang.Measured{Round: w.measure.Round - uint32(rapid.IntRange(0, 1).Draw(t, "late"))}
			if rapid.IntRange(0, 2).Draw(t, "unfit") == 0 {
				ev.Unfit = append(ev.Unfit, gang.Unfit{Rank: seat.Rank, Hold: seat.Hold, Reason: market.Refuse(market.ReasonDistance, "too far")})
			}
			return ev
		case gang.PhaseSigning:
			return gang.Signed{Rank: seat.Rank, Hold: seat.Hold, Lease: market.LeaseID{1}, ActivateBefore: w.now.Slot + 20}
		case gang.PhaseActivating:
			return gang.Activated{Rank: seat.Rank, Hold: seat.Hold}
		}
	}
	hold, rank := seat.Hold, seat.Rank
	if len(w.asked) > 0 && rapid.Bool().Draw(t, "any hold") {
		holds := make([]market.HoldID, 0, len(w.asked))
		for h := range w.asked {
			holds = append(holds, h)
		}
		slices.SortFunc(holds, func(a, b market.HoldID) int { return slices.Compare(a[:], b[:]) })
		hold = rapid.SampledFrom(holds).Draw(t, "hold")
		rank = w.asked[hold].Rank
	}
	if rapid.IntRange(0, 19).Draw(t, "wrong rank") == 0 {
		rank++
	}
	switch rapid.IntRange(0, 10).Draw(t, "event") {
	case 10:
		ev := gang.Recruited{Round: w.recruit - uint32(rapid.IntRange(0, 1).Draw(t, "stale"))}
		for range rapid.IntRange(0, 3).Draw(t, "recruits") {
			ev.Providers = append(ev.Providers, sign.Key{byte(rapid.IntRange(1, 20).Draw(t, "recruit"))})
		}
		return ev
	case 0, 1:
		if rapid.IntRange(0, 3).Draw(t, "odd units") == 0 {
			unit = []market.UnitID{{1}, {2}}[:rapid.IntRange(0, 2).Draw(t, "units")]
		} else if rapid.IntRange(0, 3).Draw(t, "taken unit") == 0 {
			unit = []market.UnitID{{5}}
		}
		return gang.Held{Rank: rank, Hold: hold, Units: unit, Overlay: rapid.SampledFrom([]market.OverlayKey{{}, overlayKey(0), overlayKey(1), w.key(seat)}).Draw(t, "key"),
			Until: rapid.SampledFrom([]time.Time{{}, w.now.Time.Add(4 * time.Second)}).Draw(t, "until")}
	case 2:
		return gang.Signed{Rank: rank, Hold: hold, Lease: market.LeaseID{2}, ActivateBefore: w.now.Slot + market.Slot(rapid.IntRange(0, 20).Draw(t, "left"))}
	case 3:
		return gang.Activated{Rank: rank, Hold: hold}
	case 4:
		return gang.Refused{Rank: rank, Hold: hold, Reason: market.Refuse(market.ReasonCapacity, "full")}
	case 5:
		return gang.Lost{Rank: rank, Hold: hold}
	case 6:
		return gang.Released{Hold: hold}
	case 7:
		if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
			return gang.Cancelled{Reason: "stopped by its owner"}
		}
		return gang.Held{Rank: 77, Hold: market.HoldID{200}, Units: unit}
	default:
		w.now.Time = w.now.Time.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
		w.now.Slot += market.Slot(rapid.IntRange(0, 6).Draw(t, "slots"))
		return gang.DeadlinePassed{}
	}
}

func TestGangOfNobody(t *testing.T) {
	t.Parallel()
	for _, chosen := range [][]gang.Member{nil, {{Rank: 1, Provider: sign.Key{1}}, {Rank: 1, Provider: sign.Key{2}}}} {
		g, effects := gang.New(testOrder(1, 1), chosen, nil, testParams())
		if g.State() != gang.Failed || len(effects) != 1 {
			t.Errorf("%s, %v", g.State(), effects)
		}
		if _, ok := g.NextDeadline(); ok {
			t.Error("a failed gang still waits")
		}
	}
}

// States and phases have distinct names, and unknown values show their number.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"": true}
	for s := gang.Reserving; s <= gang.Failed; s++ {
		if seen[s.String()] {
			t.Errorf("state %d: the name %q is not its own", uint8(s), s)
		}
		seen[s.String()] = true
	}
	for p := gang.PhaseAsked; p <= gang.PhaseActive; p++ {
		if name := "phase " + p.String(); seen[name] || p.String() == "" {
			t.Errorf("phase %d: the name %q is not its own", uint8(p), p)
		} else {
			seen[name] = true
		}
	}
	for got, want := range map[string]string{
		gang.State(0).String(): "state(0)", (gang.Failed + 1).String(): "state(8)",
		gang.Phase(0).String(): "phase(0)", (gang.PhaseActive + 1).String(): "phase(7)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func BenchmarkForm64(b *testing.B) {
	var chosen []gang.Member
	for i := range 64 {
		chosen = append(chosen, gang.Member{Rank: uint32(i), Provider: sign.Key{byte(i + 1)}})
	}
	now := lease.Now{Time: epoch, Slot: 1000}
	b.ReportAllocs()
	for b.Loop() {
		g, effects := gang.New(testOrder(64, 1), chosen, nil, testParams())
		for len(effects) > 0 {
			var next []gang.Effect
			for _, e := range effects {
				var ev gang.Event
				switch e := e.(type) {
				case gang.Reserve:
					ev = gang.Held{Rank: e.Rank, Hold: e.Hold, Units: []market.UnitID{market.UnitID{byte(e.Rank)}}}
				case gang.Sign:
					ev = gang.Signed{Rank: e.Rank, Hold: e.Hold, ActivateBefore: 2000}
				case gang.Activate:
					ev = gang.Activated{Rank: e.Rank, Hold: e.Hold}
				default:
					continue
				}
				var more []gang.Effect
				g, more, _ = g.Step(now, ev)
				next = append(next, more...)
			}
			effects = next
		}
		if g.State() != gang.Running {
			b.Fatal(g.State())
		}
	}
}
