package match

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
)

// Near bounds the distances between the members of a cluster.
type Near struct {
	// Within bounds the round trip predicted between any two of them; 0: any distance will do, and near is still better
	// than far.
	Within time.Duration
	// Members is the known coordinates of the cluster's existing members.
	Members []market.Coordinate
}

// Choice is the proposal of SelectCluster.
type Choice struct {
	Chosen []Assignment // the first is the most reliable of them
	Spares []sign.Key   // as in Select, but only providers near all chosen members
	// the largest round trip predicted between two of them with known coordinates; 0: fewer than two have one
	Diameter time.Duration
	Cost     uint64 // the minimised cost
}

// TooFar reports that there are providers enough, and that they are not near enough to one another.
type TooFar struct {
	Need, Of int // members wanted, providers that could be one
	// the largest predicted round trip within the nearest Need of them; 0: most are too far from the existing members
	Apart  time.Duration
	Within time.Duration
}

// Error is a line a person can act on.
func (t *TooFar) Error() string {
	if t.Apart == 0 {
		return fmt.Sprintf("fewer than %d of %d providers are within %v of the cluster's members",
			t.Need, t.Of, t.Within)
	}
	return fmt.Sprintf("the best %d of %d providers are %v apart, at most %v will do",
		t.Need, t.Of, round(t.Apart), t.Within)
}

// round drops digits beyond the accuracy of a prediction.
func round(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

const (
	// maxCenters bounds the providers that a cluster is chosen among, the best ranked first.
	maxCenters = 1024
	// rttUnsaid is assumed for the round trip to a peer with unknown coordinate, unless a bound is lower.
	rttUnsaid = 100 * time.Millisecond
	// costScale is the cost 1: of a price at the ceiling, of a reputation of 0, or of a diameter of rttHalfMicros.
	costScale = 1_000_000
	// shunnedCost excludes shunned providers if there are others.
	shunnedCost = 1 << 40
	// tighter is the number of times that the bound is halved to find a nearer cluster at little more cost.
	tighter = 5
)

// SelectCluster proposes n ranks of one cluster, 0 to n-1. Of the considered sets with all members within near of each
// other, it takes the one with the least
//
//	Σ over members (Price · price/ceiling + Reputation · (1 − reputation) + Warm · (1 − warm))
//	    + n · RTT · diameter/50 ms
//
// with the weights of the ranking; warm is 0 for a provider without the order's image, else 1. Each provider is tried
// as a centre, with the cheapest providers within the bound of it and of each other, then within half of the bound,
// and so on. An uncertain coordinate excludes no provider: a prediction is reduced by both errors. With spread, every
// rank is on another provider; without, each takes as many ranks as it can. Newcomers have no quota, since a cluster
// is as reliable as its least reliable member. Rank 0 goes to the most reliable: reputation, stake, price.
//
// It returns an [*Unschedulable], as Select does, or a [*TooFar] error.
func SelectCluster(order market.Order, res Result, n int, spread bool, near Near) (Choice, error) {
	c := newClustering(order, res, n, spread, near)
	if n < 1 || c.room < n {
		_, _, none := Select(order, res, n, spread)
		if none == nil { // more providers than considered
			none = &Unschedulable{Order: order.ID, Class: order.Class, Need: n, Found: c.room,
				Considered: res.Considered, Counts: res.Counts, Refused: res.Refused, Ceiling: res.Ceiling,
				Decimals: res.weights.Decimals}
		}
		return Choice{}, none
	}
	best := c.search()
	if best.members == nil {
		return Choice{}, &TooFar{Need: n, Of: len(c.all), Apart: c.nearest(), Within: near.Within}
	}
	return c.choice(best), nil
}

// clustering is one search for a cluster. Providers are numbered as they are ranked.
type clustering struct {
	n      int
	all    []Scored
	takes  []int      // ranks that each can have
	room   int        // ranks that all could have, were they near enough
	cost   []uint64   // of one rank on each
	order  []int      // by cost, then rank
	apart  [][]uint32 // predicted round trips, microseconds
	sure   [][]uint32 // the distance of which both are sure
	bound  uint32
	lambda uint64   // for each microsecond of diameter
	first  []uint32 // the diameter that each has with the members there are
}

// set is providers, by number, with the ranks that each has.
type set struct {
	members  []int
	ranks    []int
	diameter uint32
	cost     uint64
}

func newClustering(order market.Order, res Result, n int, spread bool, near Near) *clustering {
	w := res.weights
	all := once(res.Ranked)
	all = all[:min(len(all), maxCenters)]
	c := &clustering{n: n, all: all, bound: ^uint32(0),
		lambda: uint64(max(n, 0)) * uint64(w.RTT) * costScale / rttHalfMicros}
	unsaid := micros(rttUnsaid)
	if near.Within > 0 {
		c.bound = micros(near.Within)
		unsaid = min(unsaid, c.bound)
	}
	near.Members = slices.DeleteFunc(slices.Clone(near.Members), market.Coordinate.IsZero)
	for i := range all {
		s := &all[i]
		take := 1
		if !spread {
			take = min(int(s.Leases), n)
		}
		c.room += take
		first, within := uint32(0), true
		for _, m := range near.Members {
			d, sure := predict(s.Candidate.Offer.Coordinate, m, unsaid)
			first, within = max(first, d), within && sure <= c.bound
		}
		if !within {
			take = 0
		}
		c.takes, c.first, c.order = append(c.takes, take), append(c.first, first), append(c.order, i)
		c.cost = append(c.cost, memberCost(s, order, w))
	}
	slices.SortStableFunc(c.order, func(a, b int) int { return cmp.Compare(c.cost[a], c.cost[b]) })
	c.apart, c.sure = make([][]uint32, len(all)), make([][]uint32, len(all))
	flat := make([]uint32, 2*len(all)*len(all))
	for i := range all {
		c.apart[i], flat = flat[:len(all)], flat[len(all):]
		c.sure[i], flat = flat[:len(all)], flat[len(all):]
		for j := range i {
			d, sure := predict(all[i].Candidate.Offer.Coordinate, all[j].Candidate.Offer.Coordinate, unsaid)
			c.apart[i][j], c.apart[j][i], c.sure[i][j], c.sure[j][i] = d, d, sure, sure
		}
	}
	return c
}

func micros(d time.Duration) uint32 { return uint32(min(max(d, 0), time.Hour).Microseconds()) }

// predict is the round trip between two peers, and how much of it both are sure of.
func predict(a, b market.Coordinate, unsaid uint32) (d, sure uint32) {
	if a.IsZero() || b.IsZero() {
		return unsaid, 0
	}
	d = micros(a.Distance(b))
	doubt := min(uint64(a.Error)+uint64(b.Error), costScale)
	return d, uint32(uint64(d) * (costScale - doubt) / costScale)
}

// memberCost is the cost of one rank on a provider, in the terms of SelectCluster.
func memberCost(s *Scored, order market.Order, w Weights) uint64 {
	price, ceiling := uint64(costScale), uint64(order.Ceiling)
	if p := uint64(s.Candidate.Price()); p < ceiling {
		hi, lo := bits.Mul64(p, costScale)
		price, _ = bits.Div64(hi, lo, ceiling) // below 10⁶, as p < ceiling
	}
	cost := uint64(w.Price)*price + uint64(w.Reputation)*uint64(costScale-min(s.Candidate.Reputation, costScale))
	if order.Image != (images.Prefix{}) && !s.Candidate.Offer.Ready.Has(order.Image) {
		cost += uint64(w.Warm) * costScale
	}
	if s.Candidate.Shunned {
		cost += shunnedCost
	}
	return cost
}

// search tries every centre under every bound.
func (c *clustering) search() set {
	var best set
	bound := c.bound
	if bound == ^uint32(0) { // unbounded: halving begins at the diameter of the best set
		best = c.under(bound, best)
		bound = best.diameter / 2
	}
	for range tighter {
		best = c.under(bound, best)
		if bound /= 2; bound == 0 {
			break
		}
	}
	return best
}

// under returns the better of best and the best set with all members within bound of each other. Uncertainty is
// subtracted for the requested bound alone; tighter bounds apply to the whole prediction.
func (c *clustering) under(bound uint32, best set) set {
	d := c.apart
	if bound == c.bound {
		d = c.sure
	}
	var s set
	for center := range c.all {
		if c.takes[center] == 0 || best.members != nil && c.least(center) >= best.cost {
			continue
		}
		if s = c.around(center, d, bound, s); s.members == nil {
			continue
		}
		if best.members == nil || s.cost < best.cost {
			best, s = s, set{}
		}
	}
	return best
}

// least is a lower bound of the cost of any cluster with this centre.
func (c *clustering) least(center int) uint64 {
	cost, left := uint64(0), c.n
	take := min(c.takes[center], left)
	cost, left = cost+c.cost[center]*uint64(take), left-take
	for _, i := range c.order {
		if left == 0 {
			break
		}
		if i != center {
			take = min(c.takes[i], left)
			cost, left = cost+c.cost[i]*uint64(take), left-take
		}
	}
	return cost
}

// around returns the cheapest n around a centre, in the space of scrap; without members if there are too few.
func (c *clustering) around(center int, d [][]uint32, bound uint32, scrap set) set {
	s := set{members: scrap.members[:0], ranks: scrap.ranks[:0]}
	left := c.n
	add := func(i int) {
		take := min(c.takes[i], left)
		s.diameter = max(s.diameter, c.first[i])
		for _, m := range s.members {
			s.diameter = max(s.diameter, c.apart[i][m])
		}
		s.members, s.ranks, left = append(s.members, i), append(s.ranks, take), left-take
		s.cost += c.cost[i] * uint64(take)
	}
	add(center)
	row := d[center]
next:
	for _, i := range c.order {
		if left == 0 {
			break
		}
		if i == center || c.takes[i] == 0 || row[i] > bound {
			continue
		}
		to := d[i]
		for _, m := range s.members {
			if to[m] > bound {
				continue next
			}
		}
		add(i)
	}
	if left > 0 {
		return set{}
	}
	s.cost += c.lambda * uint64(s.diameter)
	return s
}

// nearest is the diameter of the nearest n, regardless of price and reputation; 0 if too few are near the existing
// members.
func (c *clustering) nearest() time.Duration {
	var best uint32
	by := slices.Clone(c.order)
	for center := range c.all {
		if c.takes[center] == 0 {
			continue
		}
		slices.SortStableFunc(by, func(a, b int) int { return cmp.Compare(c.apart[center][a], c.apart[center][b]) })
		left, members, diameter := c.n, []int{}, uint32(0)
		for _, i := range by {
			if c.takes[i] == 0 || left <= 0 {
				continue
			}
			for _, m := range members {
				diameter = max(diameter, c.apart[i][m])
			}
			members, left = append(members, i), left-c.takes[i]
		}
		if left <= 0 && (best == 0 || diameter < best) {
			best = diameter
		}
	}
	return time.Duration(best) * time.Microsecond
}

// choice puts the most reliable provider first and lists possible replacements.
func (c *clustering) choice(s set) Choice {
	head := 0
	for i := range s.members {
		if c.moreReliable(s.members[i], s.members[head]) {
			head = i
		}
	}
	s.members[0], s.members[head] = s.members[head], s.members[0]
	s.ranks[0], s.ranks[head] = s.ranks[head], s.ranks[0]
	out := Choice{Cost: s.cost}
	left := slices.Clone(c.takes)
	for k, i := range s.members {
		p := &c.all[i].Candidate
		for _, m := range s.members[:k] {
			if to := c.all[m].Candidate.Offer.Coordinate; !to.IsZero() && !p.Offer.Coordinate.IsZero() {
				out.Diameter = max(out.Diameter, p.Offer.Coordinate.Distance(to))
			}
		}
		for range s.ranks[k] {
			out.Chosen = append(out.Chosen, Assignment{uint32(len(out.Chosen)), p.Offer.Provider, p.Price(), p.Route})
		}
		left[i] -= s.ranks[k]
	}
	for _, i := range c.order {
		if left[i] == 0 || slices.ContainsFunc(s.members, func(m int) bool { return c.sure[i][m] > c.bound }) {
			continue
		}
		for range left[i] {
			out.Spares = append(out.Spares, c.all[i].Candidate.Offer.Provider)
		}
	}
	return out
}

// moreReliable compares two providers by reputation, then by stake, then by price.
func (c *clustering) moreReliable(a, b int) bool {
	x, y := &c.all[a].Candidate, &c.all[b].Candidate
	if x.Shunned != y.Shunned {
		return y.Shunned
	}
	return cmp.Or(-cmp.Compare(x.Reputation, y.Reputation), -cmp.Compare(x.Stake, y.Stake),
		cmp.Compare(x.Price(), y.Price()), cmp.Compare(a, b)) < 0
}
