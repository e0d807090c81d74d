package match

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
)

// Scored is a feasible candidate with its place.
type Scored struct {
	Candidate Candidate
	Score     uint32 // millionths; the weighted mean of Parts
	Parts     Parts
	Leases    uint32 // how many leases of the order it could take
}

// Refusal is a candidate that cannot do the order, with the first reason found.
type Refusal struct {
	Provider sign.Key      `json:"provider"`
	Route    string        `json:"route"`
	Model    string        `json:"model,omitempty"` // of its units, with "(simulated)" where they are
	Reason   market.Reason `json:"reason"`
	Detail   string        `json:"detail"`
	Price    market.Price  `json:"price,omitempty"` // it asks
}

// Result is the outcome of Rank.
type Result struct {
	Order      market.OrderID
	Ranked     []Scored              // best first, at most Weights.Keep; shunned ones last
	Newcomers  []Scored              // the best newcomers, best first; they may be in Ranked too
	Considered int                   // number of considered candidates
	Feasible   int                   // candidates that could do it
	Counts     map[market.Reason]int // number of refusals by reason
	Refused    []Refusal             // up to maxRefusals of each reason; of those over the ceiling, the nearest
	Nearest    market.Price          // lowest price over the ceiling, 0 if there is none
	Ceiling    market.Price
	Classes    []market.Class // the offered classes, if the order's is not offered
	weights    Weights
}

// maxRefusals is how many refusals of one reason a Result spells out.
const maxRefusals = 32

// Rank is NewSnapshot(cands).Rank, for few candidates.
func Rank(order market.Order, cands []Candidate, now time.Time, w Weights) Result {
	return NewSnapshot(cands).Rank(order, now, w)
}

// query is an order made ready for comparing.
type query struct {
	order     *market.Order
	cands     []Candidate
	w         Weights
	now       int64
	runtime   uint64
	regions   []int32 // score in millionths by region id, -1 where not allowed
	barred    []sign.Key
	bars      []uint64 // their prefixes
	weightSum uint64
	work      float64 // the median proven work for its price over all offers, 0 if none is proven
	proven    uint32  // units that must be proven: those of one lease, or none
	k0, k1    uint64  // tie-break keys, from the order's id
}

func (s *Snapshot) query(order *market.Order, now time.Time, w Weights) query {
	q := query{order: order, cands: s.cands, w: w, now: now.UnixMilli(), runtime: s.runtimes[order.Runtime],
		regions: make([]int32, len(s.regions)), barred: append([]sign.Key{order.Buyer, order.Peer()}, order.Exclude...),
		k0: binary.BigEndian.Uint64(order.ID[:8]), k1: binary.BigEndian.Uint64(order.ID[8:16]) | 1,
		weightSum: uint64(w.Price) + uint64(w.Reputation) + uint64(w.RTT) + uint64(w.Region) + uint64(w.Stake) +
			uint64(w.Work)}
	if order.Image != (images.Prefix{}) {
		q.weightSum += uint64(w.Warm)
	}
	if w.Audited && !order.Unproven {
		q.proven = order.UnitsPer
	}
	for _, k := range q.barred {
		q.bars = append(q.bars, prefix(k))
	}
	for region, id := range s.regions {
		q.regions[id] = 1e6
		if n := len(order.Regions); n > 0 {
			q.regions[id] = -1
			if i := slices.Index(order.Regions, region); i >= 0 {
				q.regions[id] = int32(1e6 * (n - i) / n)
			}
		}
	}
	return q
}

// Rank filters and scores all candidates.
func (s *Snapshot) Rank(order market.Order, now time.Time, w Weights) Result {
	if w.Keep == 0 {
		w.Keep = 4*int(order.Count) + 32
	}
	res := Result{Order: order.ID, Considered: len(s.cands), Counts: map[market.Reason]int{}, Ceiling: order.Ceiling,
		weights: w}
	groups, fit := s.accepting(order.Class), 0
	for _, g := range groups {
		fit += len(g.rows)
	}
	if other := len(s.cands) - fit; other > 0 {
		res.Counts[market.ReasonClass] = other
	}
	if fit == 0 {
		res.Classes = slices.Sorted(maps.Keys(s.classes))
		return res
	}
	q := s.query(&order, now, w)
	q.work = typical(groups)
	best, fresh := newTop(w.Keep), newTop(int(quota(order.ID, order.Count, w.NewcomerOneIn))+8)
	var over []*row // the nearest of each class
	for _, g := range groups {
		rows := g.rows
		within := sort.Search(len(rows), func(i int) bool { return rows[i].price > uint64(order.Ceiling) })
		s.sift(&res, &q, group{rows: rows[:within], salt: g.salt}, best, fresh)
		res.Counts[market.ReasonPrice] += len(rows) - within
		for i := range rows[within:min(len(rows), within+maxRefusals)] {
			over = append(over, &rows[within+i])
		}
	}
	if len(over) == 0 {
		delete(res.Counts, market.ReasonPrice)
	} else {
		slices.SortStableFunc(over, func(a, b *row) int { return cmp.Compare(a.price, b.price) })
		res.Nearest = market.Price(over[0].price)
		for _, r := range over[:min(len(over), maxRefusals)] {
			res.Refused = append(res.Refused, s.refusal(&q, r, market.ReasonPrice))
		}
	}
	res.Ranked, res.Newcomers = s.scored(&q, best), s.scored(&q, fresh)
	return res
}

// sift scores the rows that fit and counts the others.
func (s *Snapshot) sift(res *Result, q *query, g group, best, fresh *top) {
	for i := range g.rows {
		r := &g.rows[i]
		if reason := q.refuse(s, r); reason != "" {
			s.refused(res, q, r, reason)
			continue
		}
		res.Feasible++
		key := uint64(q.score(r))<<scoreShift | q.tie(r.provider^g.salt)>>(64-scoreShift)
		if !r.flags.has(shunned) {
			key |= 1 << 63
		}
		best.offer(key, r)
		if r.flags.has(newcomer) {
			fresh.offer(key, r)
		}
	}
}

// A place is, from its highest bit: not shunned, 20 bits of score, tie-break.
const (
	scoreBits  = 20
	scoreShift = 63 - scoreBits
)

func (s *Snapshot) scored(q *query, t *top) []Scored {
	out := make([]Scored, 0, len(t.items))
	for _, it := range t.sorted() {
		r := it.row
		c := s.cands[r.index]
		out = append(out, Scored{Candidate: c, Score: uint32(it.key >> scoreShift & (1<<scoreBits - 1)),
			Parts: q.parts(r), Leases: c.leases(q.order, q.proven > 0)})
	}
	return out
}

// refuse returns the first reason why the row does not fit the order, or "". It does not check the price: the rows are
// cut at the ceiling.
func (q *query) refuse(s *Snapshot, r *row) market.Reason {
	o := q.order
	for i, bar := range q.bars {
		if r.provider == bar && s.cands[r.index].Offer.Provider == q.barred[i] {
			if i == 0 {
				return market.ReasonOwn
			}
			return market.ReasonExcluded
		}
	}
	switch {
	case r.expires <= q.now:
		return market.ReasonExpired
	case r.notBefore > q.now:
		return market.ReasonNotYet
	case q.regions[r.region] < 0:
		return market.ReasonRegion
	case r.runtimes&q.runtime == 0 && !q.runtimeByName(s, r):
		return market.ReasonRuntime
	case r.egress < o.Egress:
		return market.ReasonEgress
	case !r.res.Covers(o.Min):
		return market.ReasonResources
	case uint32(r.capability) < uint32(o.MinCapability):
		return market.ReasonCapability
	case o.Slots < r.minSlots || o.Slots > r.maxSlots:
		return market.ReasonDuration
	case r.stake < uint64(o.MinStake):
		return market.ReasonStake
	case r.reputation < q.w.MinReputation:
		return market.ReasonReputation
	case r.shown < q.proven || q.proven > 0 && r.flags.has(generic) && o.Class != o.Class.Family():
		return q.unproven(r)
	}
	if !r.flags.has(quoted) {
		if r.units < o.UnitsPer {
			return market.ReasonCapacity
		}
		return ""
	}
	if c := &s.cands[r.index]; c.Quote.Order != o.ID || c.Quote.CheckOffer(c.Offer) != nil {
		return market.ReasonConflict
	}
	return ""
}

// unproven returns the reason why too few units of a row are proven: capacity if it has too few units at all.
func (q *query) unproven(r *row) market.Reason {
	if !r.flags.has(quoted) && r.units < q.order.UnitsPer {
		return market.ReasonCapacity
	}
	return market.ReasonUnproven
}

// runtimeByName is for networks with more runtime names than bits.
func (q *query) runtimeByName(s *Snapshot, r *row) bool {
	return q.runtime == 0 && len(s.runtimes) == maxRuntimeBits &&
		slices.Contains(s.cands[r.index].Offer.Runtimes, q.order.Runtime)
}

// Half values of the score's curves.
const (
	rttHalfMicros = 50_000
	rttUnknown    = 300_000 // score of a peer not measured: as at about 117 ms
)

func (q *query) parts(r *row) Parts {
	p := Parts{Price: 1e6, Reputation: r.reputation, RTT: rttUnknown, Region: uint32(max(0, q.regions[r.region]))}
	if c := uint64(q.order.Ceiling); c > 0 && r.price <= c {
		hi, lo := bits.Mul64(c-r.price, 1e6)
		part, _ := bits.Div64(hi, lo, c) // below 10⁶, as c - price ≤ c
		p.Price = uint32(part)
	}
	if r.rttMicros > 0 {
		p.RTT = uint32(rttHalfMicros * 1_000_000 / (rttHalfMicros + uint64(r.rttMicros)))
	}
	if r.stake > 0 {
		p.Stake = uint32(1e6 * (float64(r.stake) / (float64(r.stake) + float64(q.w.StakeHalf))))
	}
	if r.flags.has(ready) && q.cands[r.index].Offer.Ready.Has(q.order.Image) {
		p.Warm = 1e6
	}
	if q.work > 0 {
		p.Work = uint32(1e6 * (float64(r.work) / (float64(r.work) + q.work)))
	}
	return p
}

func (q *query) score(r *row) uint32 {
	if q.weightSum == 0 {
		return 0
	}
	p, w := q.parts(r), &q.w
	sum := uint64(w.Price)*uint64(p.Price) + uint64(w.Reputation)*uint64(p.Reputation) + uint64(w.RTT)*uint64(p.RTT) +
		uint64(w.Region)*uint64(p.Region) + uint64(w.Stake)*uint64(p.Stake) + uint64(w.Work)*uint64(p.Work) +
		uint64(w.Warm)*uint64(p.Warm)
	return uint32(sum / q.weightSum)
}

// tie orders equal scores by a hash of provider and order, so that no provider is first in every order. The order's id
// is itself a hash with the buyer's nonce: no key can be chosen in advance to win.
func (q *query) tie(provider uint64) uint64 {
	hi, lo := bits.Mul64(provider^q.k0, q.k1)
	hi, lo = bits.Mul64(hi^lo^q.k1, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (s *Snapshot) refused(res *Result, q *query, r *row, reason market.Reason) {
	n := res.Counts[reason]
	res.Counts[reason] = n + 1
	if n < maxRefusals {
		res.Refused = append(res.Refused, s.refusal(q, r, reason))
	}
}

func (s *Snapshot) refusal(q *query, r *row, reason market.Reason) Refusal {
	c, o := &s.cands[r.index], q.order
	money := func(n uint64) string { return market.Decimal(n, q.w.Decimals) }
	detail := ""
	switch reason {
	case market.ReasonOwn:
		detail = "provider: the buyer itself"
	case market.ReasonExcluded:
		detail = "provider: excluded by the order"
	case market.ReasonExpired:
		detail = fmt.Sprintf("offer or quote: expired %s ago", time.Duration(q.now-r.expires)*time.Millisecond)
	case market.ReasonNotYet:
		detail = fmt.Sprintf("offer: begins in %s", time.Duration(r.notBefore-q.now)*time.Millisecond)
	case market.ReasonRegion:
		detail = fmt.Sprintf("region %s is not among %v", regionOf(c), o.Regions)
	case market.ReasonEgress:
		detail = c.Offer.Egress.Refuse(o.Egress).Error()
	case market.ReasonRuntime:
		detail = fmt.Sprintf("runtime %s is not offered, %s are", o.Runtime, strings.Join(c.Offer.Runtimes, ", "))
	case market.ReasonResources:
		detail = c.Offer.Hardware() + " has " + r.res.Shortfall(o.Min)
	case market.ReasonCapability:
		detail = fmt.Sprintf("%s has compute capability %s, asked %s",
			c.Offer.Hardware(), market.Capability(r.capability), o.MinCapability)
	case market.ReasonDuration:
		detail = market.DurationText(o.Slots, r.minSlots, r.maxSlots, q.w.SlotMillis)
	case market.ReasonStake:
		detail = fmt.Sprintf("stake: got %s, want %s", money(r.stake), money(uint64(o.MinStake)))
	case market.ReasonReputation:
		detail = fmt.Sprintf("reputation %.4f, at least %.4f is asked",
			float64(r.reputation)/1e6, float64(q.w.MinReputation)/1e6)
	case market.ReasonUnproven:
		detail = fmt.Sprintf("%d units asked for a lease, %d have a fresh audit record", o.UnitsPer, r.shown)
		if !c.isProven(o.Class) {
			detail = fmt.Sprintf("class %s: audits cannot distinguish it; its units are proven and sold as %s",
				o.Class, c.Shown.Class)
		} else if c.Shown.Doubt != "" {
			detail += ": " + c.Shown.Doubt
		}
	case market.ReasonCapacity:
		detail = fmt.Sprintf("%d units asked for a lease, %d are free", o.UnitsPer, r.units)
	case market.ReasonPrice:
		detail = fmt.Sprintf("price %s is over the ceiling %s", money(r.price), money(uint64(o.Ceiling)))
	case market.ReasonConflict:
		detail = "quote: for another order"
		if c.Quote.Order == o.ID {
			detail = "quote: other units than in the offer"
		}
	}
	model := ""
	if c.Offer.Model != "" {
		model = c.Offer.Hardware()
	}
	return Refusal{Provider: c.Offer.Provider, Route: c.Route, Model: model, Reason: reason, Detail: detail,
		Price: c.Price()}
}

func regionOf(c *Candidate) market.Region {
	if c.Quote != nil {
		return c.Quote.Region
	}
	return c.Offer.Region
}
