package gang_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// past is an event with the time at which it came.
type past struct {
	now lease.Now
	ev  gang.Event
}

// TestReplay: the same events at the same times have the same effects, however often they are played, and whatever was
// played on the same gang in between (safety: a restored journal continues as the machine did).
func TestReplay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		params := recruitParams()
		params.Overlay = rapid.Bool().Draw(t, "overlay")
		if rapid.Bool().Draw(t, "alone") {
			params.Recruit = 0
		}
		var chosen []gang.Member
		for i := range n {
			chosen = append(chosen, gang.Member{Rank: uint32(i), Provider: sign.Key{byte(i + 1)}})
		}
		spares := []sign.Key{{8}, {9}}
		begin := func() (gang.Gang, []gang.Effect) { return gang.New(testOrder(uint32(n), 1), chosen, spares, params) }
		w := &world{t: t, n: n, now: lease.Now{Time: epoch, Slot: 1000}, overlay: params.Overlay,
			asked: map[market.HoldID]gang.Reserve{}, heard: map[market.HoldID]bool{},
			signable: map[market.HoldID]bool{}, payable: map[market.HoldID]bool{}}
		first, effects := begin()
		w.g = first
		w.do(effects, false)
		all := [][]gang.Effect{effects}
		var events []past
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			ev := w.randomEvent(8)
			events = append(events, past{w.now, ev})
			next, effects, err := w.g.Step(w.now, ev)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, effects)
			// A branch that is thrown away leaves no trace.
			_, _, _ = w.g.Step(w.now, gang.Cancelled{Reason: "a branch"})
			w.g = next
			w.do(effects, false)
		}
		g, effects := begin()
		for i, want := range all {
			if !reflect.DeepEqual(effects, want) {
				t.Fatalf("safety: step %d has effects %v, played first it had %v", i, effects, want)
			}
			if i < len(events) {
				g, effects, _ = g.Step(events[i].now, events[i].ev)
			}
		}
		if g.State() != w.g.State() || !reflect.DeepEqual(g.Seats(), w.g.Seats()) ||
			!reflect.DeepEqual(g.Failures(), w.g.Failures()) {
			t.Fatalf("safety: it ends %s with %v, played first it ended %s with %v", g.State(), g.Seats(), w.g.State(), w.g.Seats())
		}
	})
}

// TestTicksSuffice: with providers that never answer, a shell that looks at the clock only at NextDeadline brings the
// gang to its end, without a tick in vain (liveness), and asks each provider once.
func TestTicksSuffice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		params := testParams()
		if rapid.Bool().Draw(t, "recruit") {
			params = recruitParams()
		}
		var chosen []gang.Member
		for i := range n {
			chosen = append(chosen, gang.Member{Rank: uint32(i), Provider: sign.Key{byte(i + 1)}})
		}
		spares := make([]sign.Key, rapid.IntRange(0, 5).Draw(t, "spares"))
		for i := range spares {
			spares[i] = sign.Key{100, byte(i)}
		}
		g, effects := gang.New(testOrder(uint32(n), 1), chosen, spares, params)
		now, asked := lease.Now{Time: epoch, Slot: 1000}, map[sign.Key]int{}
		for ticks := 0; !g.State().Final(); ticks++ {
			for _, e := range effects {
				if r, ok := e.(gang.Reserve); ok {
					asked[r.Provider]++
				}
			}
			at, ok := g.NextDeadline()
			if !ok || !at.After(now.Time) {
				t.Fatalf("liveness: %s waits until %v, it is %v", g.State(), at, now.Time)
			}
			if ticks > 200 {
				t.Fatalf("liveness: still %s after %d ticks", g.State(), ticks)
			}
			now.Time = at
			g, effects, _ = g.Step(now, gang.DeadlinePassed{})
		}
		if end := params.Deadline.Add(params.ReleaseTimeout); now.Time.After(end) {
			t.Fatalf("liveness: it ended at %v, want %v at the latest", now.Time, end)
		}
		if len(asked) != n+len(spares) {
			t.Fatalf("liveness: %d of %d providers were asked", len(asked), n+len(spares))
		}
		for p, times := range asked {
			if times > 1 {
				t.Fatalf("silent provider %v was asked %d times", p[0], times)
			}
		}
	})
}

// TestHostileEvents: numbers and times from anywhere, and reasons that are missing, change nothing but what they may.
func TestHostileEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chosen := []gang.Member{{Rank: 0, Provider: sign.Key{1}}, {Rank: math.MaxUint32, Provider: sign.Key{2}}}
		g, _ := gang.New(testOrder(2, 1), chosen, nil, recruitParams())
		seats := g.Seats()
		number := rapid.OneOf(rapid.Just(uint32(0)), rapid.Just(uint32(1)), rapid.Just(uint32(math.MaxUint32)))
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			rank := number.Draw(t, "rank")
			hold := rapid.SampledFrom([]market.HoldID{{}, {1}, seats[0].Hold, seats[1].Hold}).Draw(t, "hold")
			far := rapid.SampledFrom([]time.Time{{}, epoch, time.Unix(1<<40, 0)}).Draw(t, "time")
			ev := rapid.SampledFrom([]gang.Event{
				gang.Held{Rank: rank, Hold: hold, Until: far},
				gang.Held{Rank: rank, Hold: hold, Units: make([]market.UnitID, 1), Until: far},
				gang.Signed{Rank: rank, Hold: hold, ActivateBefore: market.Slot(math.MaxUint64)},
				gang.Signed{Rank: rank, Hold: hold}, gang.Activated{Rank: rank, Hold: hold},
				gang.Refused{Rank: rank, Hold: hold}, gang.Lost{Rank: rank, Hold: hold}, gang.Released{Hold: hold},
				gang.Recruited{Round: rank, Providers: []sign.Key{{}, {1}, {99}}},
				gang.Measured{Round: rank, Unfit: []gang.Unfit{{Rank: rank, Hold: hold}}}, gang.DeadlinePassed{}, nil,
			}).Draw(t, "event")
			next, _, err := g.Step(lease.Now{Time: epoch.Add(time.Second), Slot: 1000}, ev)
			if err != nil || len(next.Seats()) != 2 || next.Seats()[1].Rank != math.MaxUint32 {
				t.Fatalf("after %#v: %v, %v", ev, next.Seats(), err)
			}
			for _, f := range next.Failures() {
				if f.Refusal == nil || f.Refusal.Reason == "" {
					t.Fatalf("after %#v: a failure without a reason", ev)
				}
			}
			g = next
		}
		if g.State() == gang.Running {
			t.Fatal("safety: formed by answers to nothing")
		}
	})
}
