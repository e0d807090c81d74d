package coords

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"pgregory.net/rapid"
)

var begin = time.Unix(1_000_000, 0)

func newSpace(t rapid.TB, was market.Coordinate) *Space {
	s, err := NewSpace(was)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// town is peers on a plane, with a way to the core of the network each, and what the round trips between them are.
type town struct {
	x, y, h []float64 // milliseconds
	s       []*Space
}

func newTown(t rapid.TB, n int, rng *rand.Rand) *town {
	w := &town{}
	for range n {
		w.x, w.y, w.h = append(w.x, 120*rng.Float64()), append(w.y, 60*rng.Float64()), append(w.h, 0.2+4*rng.Float64())
		w.s = append(w.s, newSpace(t, market.Coordinate{}))
	}
	return w
}

func (w *town) rtt(a, b int) time.Duration {
	return time.Duration((math.Hypot(w.x[a]-w.x[b], w.y[a]-w.y[b]) + w.h[a] + w.h[b]) * float64(time.Millisecond))
}

// run has each peer observe so many others, those below liars saying anything.
func (w *town) run(t rapid.TB, rounds, liars int, rng *rand.Rand) {
	now := begin
	for range rounds {
		now = now.Add(time.Minute)
		for i := liars; i < len(w.s); i++ {
			j := rng.IntN(len(w.s))
			if j == i {
				continue
			}
			at := w.s[j].published()
			if j < liars {
				for d := range at.Vec {
					at.Vec[d] = rng.Int32N(2*market.MaxCoordinate) - market.MaxCoordinate
				}
				at.Error = 0
			}
			if err := w.s[i].Observe(fmt.Sprint(j), at, w.rtt(i, j), now); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wrong is the median of how much the predictions between the peers from liars on are off, as a part of the round trips.
func (w *town) wrong(liars int) float64 {
	var all []float64
	for i := liars; i < len(w.s); i++ {
		for j := liars; j < i; j++ {
			is, want := w.s[i].Coordinate().Distance(w.s[j].Coordinate()).Seconds(), w.rtt(i, j).Seconds()
			all = append(all, math.Abs(is-want)/want)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Peers that only ever observe a few others come to coordinates that predict the round trips they never measured, and one liar in eight does
// not keep them from knowing near from far.
func TestSpaceConverges(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	w := newTown(t, 24, rng)
	if !w.s[3].Coordinate().IsZero() {
		t.Error("who has observed nothing says where it is")
	}
	w.run(t, 400, 0, rng)
	if off := w.wrong(0); off > 0.25 {
		t.Errorf("half the predictions are wrong by more than %.0f %%", 100*off)
	}
	w = newTown(t, 24, rng)
	w.run(t, 800, 3, rng)
	if off := w.wrong(3); off > 0.75 {
		t.Errorf("with liars half the predictions are wrong by more than %.0f %%", 100*off)
	}
}

// TestSpaceProperties: whatever others say, a peer's coordinate can be told, one observation moves it no farther than its step, and what is not
// used changes nothing.
func TestSpaceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var was market.Coordinate
		if rapid.Bool().Draw(t, "ran before") {
			was = anyCoordinate(t)
		}
		s, now := newSpace(t, was), begin
		for range rapid.IntRange(1, 30).Draw(t, "observations") {
			at, rtt := anyCoordinate(t), time.Duration(rapid.Int64Range(-1, int64(4*time.Second)).Draw(t, "rtt"))
			now = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "seconds")) * time.Second)
			before := s.published()
			err := s.Observe(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "from"), at, rtt, now)
			after := s.published()
			if err != nil {
				if !errors.Is(err, ErrObservation) || after != before {
					t.Fatalf("safety: %v, and it moved from %v to %v", err, before, after)
				}
				continue
			}
			if err := after.Check(); err != nil {
				t.Fatalf("safety: %v", err)
			}
			step := max(leastStep, partOfRTT*rtt.Seconds()) + 8e-6 // each part is rounded
			moved := before
			moved.Height, after.Height = 0, 0
			if d := moved.Distance(after).Seconds(); d > step {
				t.Fatalf("safety: a round trip of %v moved it by %v s", rtt, d)
			}
		}
	})
}

func anyCoordinate(t *rapid.T) market.Coordinate {
	c := market.Coordinate{Height: rapid.Uint32Range(0, market.MaxCoordinate+1).Draw(t, "height"), Error: rapid.Uint32Range(0, market.MaxCoordinateError+1).Draw(t, "error")}
	for i := range c.Vec {
		c.Vec[i] = rapid.Int32Range(-market.MaxCoordinate-1, market.MaxCoordinate+1).Draw(t, "part")
	}
	return c
}

// What is kept of peers is bounded.
func TestSpaceIsBounded(t *testing.T) {
	t.Parallel()
	s := newSpace(t, market.Coordinate{})
	for i := range 2 * maxPeers {
		if err := s.Observe(fmt.Sprint(i), market.Coordinate{Height: 100, Error: 1e6}, 10*time.Millisecond, begin.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.heard) != maxPeers {
		t.Errorf("%d peers are remembered", len(s.heard))
	}
}
