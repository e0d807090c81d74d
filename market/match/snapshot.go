package match

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Candidate is one provider that might serve an order, with the buyer's information about it.
type Candidate struct {
	Offer      market.Offer
	Quote      *market.Quote // its answer to the order being matched; nil while it has given none
	RTT        time.Duration // 0 when not measured
	Reputation uint32        // millionths: its score in the buyer's view
	Stake      market.Amount
	Newcomer   bool   // too little history to be judged by it
	Shunned    bool   // bad record: chosen only if no other provider fits
	Route      string // how it was found: "direct", "gossip", "dht"
	Shown      Shown
}

// Shown is the result of the audit records of a candidate's units, as far as the buyer has checked them.
type Shown struct {
	Units uint32 // free units with a fresh record
	// Class is the class that the records prove: the offer's class, or only its family where models cannot be
	// distinguished. "" means the offer's.
	Class market.Class
	Doubt string // why there are no more: "its record is not checked yet"

	Operations, Reads uint64 // per second: the lowest rates among them
}

// Price is the price of the candidate's quote, or that of its offer.
func (c *Candidate) Price() market.Price {
	if c.Quote != nil {
		return c.Quote.Price
	}
	return c.Offer.Price
}

// isProven reports whether the records of its units satisfy an order's class.
func (c *Candidate) isProven(asked market.Class) bool {
	return c.Shown.Class == "" || asked.Accepts(c.Shown.Class)
}

// leases is the number of leases of the order that it could take; with proven, of proven units only.
func (c *Candidate) leases(o *market.Order, proven bool) uint32 {
	n := c.Offer.Units / o.UnitsPer
	if c.Quote != nil {
		n = c.Quote.Leases
	}
	if proven && !c.isProven(o.Class) {
		return 0
	}
	if proven {
		n = min(n, c.Shown.Units/o.UnitsPer)
	}
	return n
}

// Snapshot is a set of candidates, indexed by class and family and sorted by price within a class. It is immutable, so
// concurrent matches may read it.
type Snapshot struct {
	cands    []Candidate
	classes  map[market.Class][]row
	work     map[market.Class]shown          // of the rows with known work
	families map[market.Class][]market.Class // the classes of a family, sorted; no row is held twice
	regions  map[market.Region]uint32
	runtimes map[string]uint64 // bit of each name; 0 when there are too many
}

// row holds the fields of a candidate that feasibility and score read, close together in memory.
type row struct {
	price      uint64
	provider   uint64 // first eight bytes of its key
	minSlots   uint64
	maxSlots   uint64
	stake      uint64
	notBefore  int64 // Unix milliseconds
	expires    int64
	runtimes   uint64
	res        market.Resources
	units      uint32
	shown      uint32
	index      uint32 // into cands
	reputation uint32 // millionths
	rttMicros  uint32 // 0 when not measured
	region     uint32
	// operations a second for a base unit of price, as audits proved of its slowest unit; 0: not known
	work       float32
	capability uint16
	egress     market.Egress
	flags      flags
}

type flags uint8

const (
	newcomer flags = 1 << iota
	quoted
	shunned
	generic // its records prove the family alone
	ready   // its offer names images
)

func (f flags) has(bit flags) bool { return f&bit != 0 }

func (f *flags) set(bit flags, on bool) {
	if on {
		*f |= bit
	}
}

// maxRuntimeBits is how many runtime names have a bit of their own in a row; the rest share none and are compared by
// name.
const maxRuntimeBits = 63

// NewSnapshot indexes the candidates. It keeps the slice, which must not change from then on.
func NewSnapshot(cands []Candidate) *Snapshot {
	s := &Snapshot{cands: cands, classes: map[market.Class][]row{}, work: map[market.Class]shown{},
		families: map[market.Class][]market.Class{}, regions: map[market.Region]uint32{}, runtimes: map[string]uint64{}}
	sizes := map[market.Class]int{}
	for i := range cands {
		sizes[cands[i].Offer.Class]++
	}
	for class, n := range sizes {
		s.classes[class] = make([]row, 0, n)
		s.families[class.Family()] = append(s.families[class.Family()], class)
	}
	for _, classes := range s.families {
		slices.Sort(classes)
	}
	for i := range cands {
		class := cands[i].Offer.Class
		s.classes[class] = append(s.classes[class], s.row(i))
	}
	for class, rows := range s.classes {
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.price, b.price) })
		s.work[class] = shownBy(rows)
	}
	return s
}

// shown is the proven work for its price over the rows of a class. It is the median: one unit offered almost for free
// must not make the differences of all others negligible.
type shown struct {
	median float32
	rows   int // of which it is known
}

func shownBy(rows []row) shown {
	var all []float32
	for i := range rows {
		if rows[i].work > 0 {
			all = append(all, rows[i].work)
		}
	}
	if len(all) == 0 {
		return shown{}
	}
	slices.Sort(all)
	return shown{all[len(all)/2], len(all)}
}

// group is the rows of one class. Its salt makes the tie-break of one provider's classes differ.
type group struct {
	rows []row
	salt uint64
	work shown
}

// typical is the mean of the groups' medians, weighted by their rows; 0 if no work is known.
func typical(groups []group) float64 {
	sum, rows := 0.0, 0
	for _, g := range groups {
		sum += float64(float64(g.work.median) * float64(g.work.rows))
		rows += g.work.rows
	}
	if rows == 0 {
		return 0
	}
	return sum / float64(rows)
}

// accepting lists the rows of each class that an order of class c takes.
func (s *Snapshot) accepting(c market.Class) []group {
	if c != c.Family() {
		return []group{{rows: s.classes[c], work: s.work[c]}}
	}
	var groups []group
	for _, class := range s.families[c] {
		g := group{rows: s.classes[class], work: s.work[class]}
		if class != c {
			h := sign.Sum([]byte(class))
			g.salt = binary.BigEndian.Uint64(h[:8])
		}
		groups = append(groups, g)
	}
	return groups
}

// Len is the number of candidates.
func (s *Snapshot) Len() int { return len(s.cands) }

func (s *Snapshot) row(i int) row {
	c := &s.cands[i]
	o := &c.Offer
	r := row{
		price: uint64(c.Price()), provider: prefix(o.Provider), minSlots: o.MinSlots, maxSlots: o.MaxSlots,
		stake: uint64(c.Stake), notBefore: o.NotBefore.UnixMilli(), expires: o.Expires.UnixMilli(), res: o.PerUnit,
		units: o.Units, shown: c.Shown.Units, index: uint32(i), reputation: min(c.Reputation, 1e6),
		capability: uint16(min(o.Capability, market.MaxCapability)), egress: o.Egress,
		rttMicros: uint32(max(0, min(c.RTT, time.Hour)).Microseconds()),
	}
	if c.Shown.Units > 0 {
		r.work = float32(float64(c.Shown.Operations) / float64(max(r.price, 1)))
	}
	if o.NotBefore.IsZero() {
		r.notBefore = 0
	}
	r.flags.set(newcomer, c.Newcomer)
	r.flags.set(quoted, c.Quote != nil)
	r.flags.set(shunned, c.Shunned)
	r.flags.set(generic, !c.isProven(o.Class))
	r.flags.set(ready, len(o.Ready) > 0)
	region := o.Region
	if q := c.Quote; q != nil {
		r.capability = uint16(min(q.Capability, market.MaxCapability))
		r.expires = min(r.expires, q.Expires.UnixMilli())
		region, r.res = q.Region, q.PerUnit
	}
	id, known := s.regions[region]
	if !known {
		id = uint32(len(s.regions))
		s.regions[region] = id
	}
	r.region = id
	for _, name := range o.Runtimes {
		bit, known := s.runtimes[name]
		if !known && len(s.runtimes) < maxRuntimeBits {
			bit = 1 << len(s.runtimes)
			s.runtimes[name] = bit
		}
		r.runtimes |= bit
	}
	return r
}

func prefix(k sign.Key) uint64 { return binary.BigEndian.Uint64(k[:8]) }
