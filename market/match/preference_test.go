package match_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// crowd is a random market in which every provider has one offer, and most can do the order.
func crowd(t *rapid.T, most int) []match.Candidate {
	var cands []match.Candidate
	for i := range rapid.IntRange(1, most).Draw(t, "candidates") {
		c := randomCandidate(t, i)
		c.Offer.Provider, c.RTT = key(i), c.RTT+time.Millisecond
		if rapid.IntRange(0, 4).Draw(t, "able") > 0 {
			plain := candidate(i)
			c.Offer.Class, c.Offer.Runtimes, c.Offer.MaxSlots = plain.Offer.Class, plain.Offer.Runtimes, plain.Offer.MaxSlots
			c.Offer.Expires, c.Offer.Units, c.Offer.PerUnit, c.Shown.Units = plain.Offer.Expires, 4, plain.Offer.PerUnit, 4
			c.Offer.Price %= 40
		}
		if c.Quote != nil {
			c.Quote.Provider, c.Quote.Price, c.Quote.Expires = c.Offer.Provider, c.Quote.Price%40, c.Offer.Expires
			c.Quote.Order, c.Quote.Class = testOrder().ID, c.Offer.Class
		}
		cands = append(cands, c)
	}
	return cands
}

// standing is the place of a provider among the ranked, or -1.
func standing(res match.Result, p sign.Key) int {
	return slices.IndexFunc(res.Ranked, func(s match.Scored) bool { return s.Candidate.Offer.Provider == p })
}

// preferences weigh all but the proven work: that is relative to the other offers.
func preferences() match.Weights {
	w := testWeights()
	w.Work, w.Keep = 0, 100
	return w
}

// TestBetterNeverRanksLower: a provider that lowers its price, comes nearer, or has more at stake or a better record
// never loses a place by it (safety: no provider gains by a worse offer).
func TestBetterNeverRanksLower(t *testing.T) {
	t.Parallel()
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		cands, o, w := crowd(t, 20), testOrder(), preferences()
		o.Image = images.Prefix{7}
		before := match.Rank(o, cands, now, w)
		if len(before.Ranked) == 0 {
			return
		}
		i := rapid.IntRange(0, len(before.Ranked)-1).Draw(t, "who")
		who := before.Ranked[i].Candidate.Offer.Provider
		at := slices.IndexFunc(cands, func(c match.Candidate) bool { return c.Offer.Provider == who })
		better := slices.Clone(cands)
		switch c := &better[at]; rapid.IntRange(0, 5).Draw(t, "how") {
		case 0:
			c.Offer.Price /= 2
			if c.Quote != nil {
				q := *c.Quote
				q.Price /= 2
				c.Quote = &q
			}
		case 1:
			c.RTT = max(c.RTT/2, time.Microsecond)
		case 2:
			c.Reputation = min(c.Reputation+200_000, 1_000_000)
		case 3:
			c.Stake *= 2
		case 4:
			c.Shunned = false
		case 5:
			c.Offer.Ready = images.Ready{o.Image}
		}
		after := match.Rank(o, better, now, w)
		j := standing(after, who)
		if j < 0 || j > i {
			t.Fatalf("safety: it was number %d and is %d by %+v after %+v", i, j, better[at], cands[at])
		}
		if j < i {
			moved++
		}
		for k, s := range after.Ranked[:j] {
			if s.Candidate.Offer.Provider != before.Ranked[k].Candidate.Offer.Provider {
				t.Fatal("safety: the order of those before it depends on it")
			}
		}
	})
	if moved == 0 {
		t.Error("nobody gained a place, so that nothing was tested")
	}
}

// TestOthersDoNotMatter: offers that cannot do the order, however many, change neither the ranking nor the scores of
// those that can (safety: a crowd of free keys moves nobody).
func TestOthersDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cands, o, w := crowd(t, 15), testOrder(), preferences()
		alone := match.Rank(o, cands, now, w)
		for i := range rapid.IntRange(1, 20).Draw(t, "others") {
			c := randomCandidate(t, 1000+i)
			c.Offer.Provider, c.Quote = key(1000+i), nil
			switch rapid.IntRange(0, 3).Draw(t, "why not") {
			case 0:
				c.Offer.Price = o.Ceiling + 1
			case 1:
				c.Offer.Expires = now
			case 2:
				c.Offer.Runtimes = []string{"docker"}
			case 3:
				c.Offer.Class = "gpu/l4"
			}
			cands = append(cands, c)
		}
		among := match.Rank(o, cands, now, w)
		if among.Feasible != alone.Feasible || len(among.Ranked) != len(alone.Ranked) {
			t.Fatalf("safety: %d are feasible, among others %d", alone.Feasible, among.Feasible)
		}
		for i, s := range alone.Ranked {
			x := among.Ranked[i]
			x.Parts.Work, s.Parts.Work = 0, 0 // relative to the other offers, and without weight here
			if x.Score != s.Score || x.Parts != s.Parts || x.Candidate.Offer.Provider != s.Candidate.Offer.Provider {
				t.Fatalf("safety: number %d is %s with %d, among others %s with %d", i,
					s.Candidate.Offer.Provider.Short(), s.Score, x.Candidate.Offer.Provider.Short(), x.Score)
			}
		}
	})
}

// TestHostileMarket: numbers from anywhere in offers, quotes and orders neither panic nor make a score that is none.
func TestHostileMarket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		big := func(label string) uint64 {
			return rapid.SampledFrom([]uint64{0, 1, 2, 1 << 31, math.MaxUint32, 1 << 63, math.MaxUint64}).Draw(t, label)
		}
		when := func(label string) time.Time {
			return rapid.SampledFrom([]time.Time{{}, now, now.Add(time.Second), time.Unix(1<<40, 0)}).Draw(t, label)
		}
		var cands []match.Candidate
		for i := range rapid.IntRange(1, 8).Draw(t, "candidates") {
			c := candidate(i)
			c.Offer.Price, c.Offer.Units, c.Offer.MinSlots = market.Price(big("price")), uint32(big("units")), big("min slots")
			c.Offer.MaxSlots, c.Offer.Expires, c.Offer.NotBefore = big("max slots"), when("expires"), when("not before")
			c.Offer.Capability = market.Capability(big("capability"))
			c.Offer.Coordinate = market.Coordinate{Vec: [market.CoordinateDims]int32{int32(big("x"))}, Height: uint32(big("height")), Error: uint32(big("error"))}
			c.Stake, c.Reputation, c.RTT = market.Amount(big("stake")), uint32(big("reputation")), time.Duration(big("rtt"))
			c.Shown = match.Shown{Units: uint32(big("shown")), Operations: big("operations"), Reads: big("reads")}
			if rapid.Bool().Draw(t, "quoted") {
				c.Quote = &market.Quote{Order: testOrder().ID, Provider: c.Offer.Provider, Class: c.Offer.Class,
					Price: market.Price(big("quote")), Leases: uint32(big("leases")), Region: c.Offer.Region, PerUnit: c.Offer.PerUnit, Expires: when("quote expires")}
			}
			cands = append(cands, c)
		}
		o := testOrder()
		o.Slots, o.Ceiling, o.MinStake = big("slots"), market.Price(big("ceiling")), market.Amount(big("min stake"))
		o.UnitsPer = max(uint32(big("units per")), 1)
		w := testWeights()
		w.Price, w.RTT, w.StakeHalf, w.Keep = uint32(big("price weight")), uint32(big("rtt weight")), market.Amount(big("half")), 50
		w.SlotMillis, w.NewcomerOneIn, w.MinReputation = big("slot"), uint32(big("one in")), uint32(big("floor"))
		res := match.Rank(o, cands, now, w)
		refused := 0
		for _, n := range res.Counts {
			refused += n
		}
		if res.Feasible+refused != len(cands) || res.Feasible != len(res.Ranked) {
			t.Fatalf("%d feasible, %d ranked and %d refused of %d", res.Feasible, len(res.Ranked), refused, len(cands))
		}
		for _, s := range res.Ranked {
			p := s.Parts
			if max(s.Score, p.Price, p.Reputation, p.RTT, p.Region, p.Stake, p.Work) > 1_000_000 || s.Candidate.Price() > o.Ceiling {
				t.Fatalf("safety: score %d of %+v at %d", s.Score, p, s.Candidate.Price())
			}
		}
		near := match.Near{Within: time.Duration(big("within"))}
		choice, err := match.SelectCluster(o, res, int(o.Count), true, near)
		var none *match.Unschedulable
		var far *match.TooFar
		if err != nil && !errors.As(err, &none) && !errors.As(err, &far) || err == nil && len(choice.Chosen) != int(o.Count) {
			t.Fatalf("a cluster of %d: %v", len(choice.Chosen), err)
		}
	})
}

// TestOneSnapshotManyMatches: matches that read one snapshot at the same time have the results that each has alone, and
// a cluster is the same in whatever order its providers were listed.
func TestOneSnapshotManyMatches(t *testing.T) {
	t.Parallel()
	cands := make([]match.Candidate, 200)
	for i := range cands {
		cands[i] = placed(i, market.Price(1+i%40), float64(i%17))
		cands[i].Reputation = uint32(i*4999) % 1_000_000
	}
	snapshot := match.NewSnapshot(slices.Clone(cands))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			o := testOrder()
			o.ID = market.OrderID(sign.Sum([]byte{byte(i)}))
			got, want := snapshot.Rank(o, now, testWeights()), match.Rank(o, slices.Clone(cands), now, testWeights())
			if !reflect.DeepEqual(got, want) {
				t.Errorf("order %d: another ranking than alone", i)
			}
			other := slices.Clone(cands)
			rand.New(rand.NewPCG(1, uint64(i))).Shuffle(len(other), func(a, b int) { other[a], other[b] = other[b], other[a] })
			one, err := match.SelectCluster(o, want, 3, true, match.Near{Within: 20 * time.Millisecond})
			two, again := match.SelectCluster(o, match.Rank(o, other, now, testWeights()), 3, true, match.Near{Within: 20 * time.Millisecond})
			if err != nil || again != nil || !slices.Equal(providers(one.Chosen), providers(two.Chosen)) || one.Cost != two.Cost {
				t.Errorf("order %d: cluster %v, in another order %v: %v, %v", i, one.Chosen, two.Chosen, err, again)
			}
		})
	}
	wg.Wait()
}
