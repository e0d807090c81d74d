package match_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// at is a coordinate on a line, so many milliseconds from its begin, of which its peer is quite sure.
func at(ms float64) market.Coordinate {
	return market.Coordinate{Vec: [market.CoordinateDims]int32{int32(ms * 1000)}, Height: 1}
}

func placed(i int, price market.Price, ms float64) match.Candidate {
	c := candidate(i)
	c.Offer.Price, c.Offer.Coordinate = price, at(ms)
	return c
}

func rank(o market.Order, cands []match.Candidate) match.Result {
	w := testWeights()
	w.Keep = len(cands)
	return match.Rank(o, cands, now, w)
}

func providers(chosen []match.Assignment) []sign.Key {
	var out []sign.Key
	for i, a := range chosen {
		if a.Rank != uint32(i) {
			panic("ranks are not counted from 0")
		}
		out = append(out, a.Provider)
	}
	return out
}

func TestSelectClusterPrefersNear(t *testing.T) {
	t.Parallel()
	o := testOrder()
	// The two cheapest are an ocean apart; three that cost a little more are beside one another.
	cands := []match.Candidate{placed(0, 20, 0), placed(1, 20, 90), placed(2, 22, 40), placed(3, 22, 41), placed(4, 23, 42), placed(5, 21, 200)}
	for _, within := range []time.Duration{0, 15 * time.Millisecond} {
		got, err := match.SelectCluster(o, rank(o, cands), 3, true, match.Near{Within: within})
		if err != nil {
			t.Fatal(err)
		}
		chosen := providers(got.Chosen)
		slices.SortFunc(chosen, func(a, b sign.Key) int { return slices.Compare(a[:], b[:]) })
		want := []sign.Key{key(2), key(3), key(4)}
		slices.SortFunc(want, func(a, b sign.Key) int { return slices.Compare(a[:], b[:]) })
		if !slices.Equal(chosen, want) || got.Diameter != 2002*time.Microsecond {
			t.Errorf("within %v: %v, %v", within, got.Chosen, got.Diameter)
		}
		if within > 0 && len(got.Spares) != 0 || within == 0 && len(got.Spares) != 3 {
			t.Errorf("within %v: %d spares", within, len(got.Spares))
		}
	}
	// A rank that was lost comes back near those that are left.
	got, err := match.SelectCluster(o, rank(o, cands), 1, true, match.Near{Within: 15 * time.Millisecond, Members: []market.Coordinate{at(95), {}}})
	if err != nil || got.Chosen[0].Provider != key(1) {
		t.Errorf("%v, %v", got.Chosen, err)
	}
}

func TestSelectClusterSaysWhyNot(t *testing.T) {
	t.Parallel()
	o := testOrder()
	cands := []match.Candidate{placed(0, 20, 0), placed(1, 20, 41), placed(2, 20, 20), placed(3, 20, 200), placed(4, 20, 300)}
	_, err := match.SelectCluster(o, rank(o, cands), 3, true, match.Near{Within: 15 * time.Millisecond})
	var far *match.TooFar
	if !errors.As(err, &far) || far.Apart != 41002*time.Microsecond || err.Error() != "the best 3 of 5 providers are 41ms apart, at most 15ms will do" {
		t.Error(err)
	}
	_, err = match.SelectCluster(o, rank(o, cands), 3, true, match.Near{Within: 15 * time.Millisecond, Members: []market.Coordinate{at(300)}})
	if !errors.As(err, &far) || far.Apart != 0 || !strings.Contains(err.Error(), "fewer than 3 of 5 providers are within 15ms") {
		t.Error(err)
	}
	_, err = match.SelectCluster(o, rank(o, cands), 6, true, match.Near{})
	var none *match.Unschedulable
	if !errors.As(err, &none) || none.Need != 6 || none.Found != 5 {
		t.Error(err)
	}
	// What nobody is sure of excludes nobody: it is measured.
	unsure := slices.Clone(cands)
	for i := range unsure {
		unsure[i].Offer.Coordinate.Error = market.MaxCoordinateError
	}
	unsure[2].Offer.Coordinate = market.Coordinate{}
	if got, err := match.SelectCluster(o, rank(o, unsure), 5, true, match.Near{Within: 15 * time.Millisecond}); err != nil || len(got.Chosen) != 5 {
		t.Error(err)
	}
}

// The head is the most reliable: by its record, then by what it has at stake, then the cheapest.
func TestSelectClusterHead(t *testing.T) {
	t.Parallel()
	o := testOrder()
	cands := []match.Candidate{placed(0, 20, 0), placed(1, 25, 0), placed(2, 21, 0)}
	for _, c := range []struct {
		change func(i int, c *match.Candidate)
		want   int
	}{
		{func(i int, c *match.Candidate) { c.Reputation = uint32(900_000 - 100_000*i) }, 0},
		{func(i int, c *match.Candidate) { c.Reputation = uint32(500_000 + 100_000*i) }, 2},
		{func(i int, c *match.Candidate) { c.Stake = market.Amount(100 * (i % 2)) }, 1},
		{func(int, *match.Candidate) {}, 0},
		{func(i int, c *match.Candidate) { c.Reputation, c.Shunned = uint32(900_000-100_000*i), i == 0 }, 1},
	} {
		changed := slices.Clone(cands)
		for i := range changed {
			c.change(i, &changed[i])
		}
		got, err := match.SelectCluster(o, rank(o, changed), 3, true, match.Near{})
		if err != nil || got.Chosen[0].Provider != key(c.want) {
			t.Errorf("want %d: %v %v", c.want, got.Chosen, err)
		}
	}
}

// told is what the test takes two peers' distance for: all of it, and what both are sure of, in microseconds.
func told(a, b market.Coordinate, within time.Duration) (d, sure float64) {
	if a.IsZero() || b.IsZero() {
		if within > 0 && within < 100*time.Millisecond {
			return float64(within.Microseconds()), 0
		}
		return 100_000, 0
	}
	d = float64(a.Distance(b).Microseconds())
	return d, d * (1 - min(1, float64(a.Error+b.Error)/1e6))
}

// TestSelectClusterProperties: it never breaks the bound, places all or none, finds something whenever the plain greedy choice does, and never
// anything that costs more by its own measure.
func TestSelectClusterProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := testOrder()
		o.Ceiling = 100
		var cands []match.Candidate
		for i := range rapid.IntRange(0, 16).Draw(t, "candidates") {
			c := candidate(i)
			c.Offer.Price, c.Offer.Units = market.Price(rapid.IntRange(0, 110).Draw(t, "price")), uint32(rapid.IntRange(1, 4).Draw(t, "units"))
			c.Reputation, c.Shunned = uint32(rapid.IntRange(0, 10).Draw(t, "reputation"))*100_000, rapid.IntRange(0, 5).Draw(t, "shunned") == 0
			if rapid.IntRange(0, 4).Draw(t, "known") > 0 {
				c.Offer.Coordinate = market.Coordinate{Vec: [8]int32{int32(rapid.IntRange(0, 60_000).Draw(t, "x")), int32(rapid.IntRange(0, 3000).Draw(t, "y"))},
					Height: uint32(rapid.IntRange(1, 500).Draw(t, "height")), Error: uint32(rapid.IntRange(0, 600_000).Draw(t, "error"))}
			}
			cands = append(cands, c)
		}
		n, spread := rapid.IntRange(1, 6).Draw(t, "n"), rapid.Bool().Draw(t, "spread")
		near := match.Near{Within: []time.Duration{0, time.Millisecond, 15 * time.Millisecond, 200 * time.Millisecond}[rapid.IntRange(0, 3).Draw(t, "within")]}
		if rapid.IntRange(0, 3).Draw(t, "members") == 0 {
			near.Members = []market.Coordinate{at(float64(rapid.IntRange(0, 60).Draw(t, "member")))}
		}
		res := rank(o, cands)
		g := &greedy{t: t, o: o, near: near, n: n, spread: spread, by: map[sign.Key]match.Scored{}}
		want, found := g.choose(res.Ranked)
		got, err := match.SelectCluster(o, res, n, spread, near)
		if err != nil {
			if found {
				t.Fatalf("safety: %v, and %v would do", err, want)
			}
			var far *match.TooFar
			var none *match.Unschedulable
			if !errors.As(err, &far) && !errors.As(err, &none) || got.Chosen != nil || got.Spares != nil || err.Error() == "" {
				t.Fatalf("%v with %+v", err, got)
			}
			return
		}
		chosen := providers(got.Chosen)
		if len(chosen) != n {
			t.Fatalf("safety: %d of %d ranks", len(chosen), n)
		}
		if cost := g.cost(chosen); cost != got.Cost || found && cost > g.cost(want) {
			t.Fatalf("it costs %d, said %d; greedy costs %d", cost, got.Cost, g.cost(want))
		}
		g.check(chosen, got.Spares)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(cands), func(i, j int) { cands[i], cands[j] = cands[j], cands[i] })
		again, err := match.SelectCluster(o, rank(o, cands), n, spread, near)
		if err != nil || !slices.Equal(again.Chosen, got.Chosen) || !slices.Equal(again.Spares, got.Spares) {
			t.Fatal("safety: the choice depends on how candidates are listed")
		}
	})
}

// greedy is the plain choice, and the plain meaning of what a choice must be.
type greedy struct {
	t      *rapid.T
	o      market.Order
	near   match.Near
	n      int
	spread bool
	by     map[sign.Key]match.Scored
}

func (g *greedy) leases(s match.Scored) int {
	if g.spread {
		return 1
	}
	return int(s.Leases)
}

func (g *greedy) within(a, b market.Coordinate) bool {
	_, sure := told(a, b, g.near.Within)
	return g.near.Within == 0 || int64(sure) <= g.near.Within.Microseconds()
}

func (g *greedy) fits(s match.Scored, with []sign.Key) bool {
	c := s.Candidate.Offer.Coordinate
	for _, m := range g.near.Members {
		if !g.within(c, m) {
			return false
		}
	}
	return !slices.ContainsFunc(with, func(k sign.Key) bool {
		return k != s.Candidate.Offer.Provider && !g.within(c, g.by[k].Candidate.Offer.Coordinate)
	})
}

func (g *greedy) price(s match.Scored) uint64 {
	w := testWeights()
	c := &s.Candidate
	cost := uint64(w.Price)*(uint64(c.Price())*1_000_000/uint64(g.o.Ceiling)) + uint64(w.Reputation)*uint64(1_000_000-c.Reputation)
	if c.Shunned {
		cost += 1 << 40
	}
	return cost
}

// choose takes the cheapest that is near enough to all it has, and so on.
func (g *greedy) choose(ranked []match.Scored) ([]sign.Key, bool) {
	for _, s := range ranked {
		g.by[s.Candidate.Offer.Provider] = s
	}
	cheapest := slices.Clone(ranked)
	slices.SortStableFunc(cheapest, func(a, b match.Scored) int {
		if x, y := g.price(a), g.price(b); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return 0
	})
	var out []sign.Key
	for _, s := range cheapest {
		if !g.fits(s, out) {
			continue
		}
		for range min(g.leases(s), g.n-len(out)) {
			out = append(out, s.Candidate.Offer.Provider)
		}
	}
	return out, len(out) == g.n
}

func (g *greedy) cost(chosen []sign.Key) uint64 {
	cost, diameter := uint64(0), 0.0
	for i, k := range chosen {
		cost += g.price(g.by[k])
		others := slices.Clone(g.near.Members)
		for _, m := range chosen[:i] {
			if m != k {
				others = append(others, g.by[m].Candidate.Offer.Coordinate)
			}
		}
		for _, c := range others {
			d, _ := told(g.by[k].Candidate.Offer.Coordinate, c, g.near.Within)
			diameter = max(diameter, d)
		}
	}
	return cost + uint64(g.n)*uint64(testWeights().RTT)*1_000_000/50_000*uint64(diameter)
}

// check holds a choice to the bound, to what each provider can take, and to the order of its heads.
func (g *greedy) check(chosen, spares []sign.Key) {
	used := map[sign.Key]int{}
	for _, k := range chosen {
		used[k]++
		if !g.fits(g.by[k], chosen) {
			g.t.Fatal("safety: two members are too far apart")
		}
		if head := g.by[chosen[0]].Candidate; g.by[k].Candidate.Reputation > head.Reputation && (head.Shunned || !g.by[k].Candidate.Shunned) {
			g.t.Fatal("safety: the head is not the most reliable")
		}
	}
	for _, k := range spares {
		used[k]++
		if !g.fits(g.by[k], chosen) {
			g.t.Fatal("safety: a spare is too far away")
		}
	}
	for k, n := range used {
		if n > g.leases(g.by[k]) {
			g.t.Fatalf("safety: %d ranks on a provider that takes %d", n, g.leases(g.by[k]))
		}
	}
}

// BenchmarkSelectCluster is 64 members of 1,000 providers in twenty towns: with a bound, without, and where none is near enough.
func BenchmarkSelectCluster(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	var cands []match.Candidate
	for i := range 1000 {
		c := candidate(i)
		town := int32(i%20) * 9000
		c.Offer.Coordinate = market.Coordinate{Vec: [8]int32{town + rng.Int32N(3000), rng.Int32N(3000), rng.Int32N(3000)}, Height: 100, Error: 100_000}
		c.Offer.Price, c.Reputation = market.Price(20+rng.IntN(20)), rng.Uint32N(1e6)
		cands = append(cands, c)
	}
	o := testOrder()
	res := rank(o, cands)
	for _, within := range []time.Duration{0, 40 * time.Millisecond, 15 * time.Millisecond, time.Millisecond} {
		b.Run(fmt.Sprintf("within-%v", within), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := match.SelectCluster(o, res, 64, true, match.Near{Within: within}); (err != nil) != (within == time.Millisecond) {
					b.Fatal(err)
				}
			}
		})
	}
}
