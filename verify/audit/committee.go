package audit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Sizes of committees.
const (
	Committee = 7  // of a first audit
	Appeal    = 11 // of one that a provider asks for after it failed
)

// Certify is how many of a committee of n must pass a record: more than two thirds. 5 of 7, 8 of 11, 1 of 1.
func Certify(n int) int { return 2*n/3 + 1 }

// Member is who may be drawn, with its weight: bonded stake in base units, or 1 each on a network without stake.
type Member struct {
	Key    sign.Key `json:"key"`
	Weight uint64   `json:"weight"`
}

// Roster is the set that committees are drawn from.
type Roster []Member

// Check refuses, with ErrRoster, a roster that nobody can be drawn from.
func (r Roster) Check() error {
	seen := map[sign.Key]bool{}
	for _, m := range r {
		if seen[m.Key] || m.Weight == 0 {
			return fmt.Errorf("%w: member %s is there twice, or without weight", ErrRoster, m.Key.Short())
		}
		seen[m.Key] = true
	}
	if len(r) == 0 {
		return fmt.Errorf("%w: it is empty", ErrRoster)
	}
	return nil
}

// Draw gives the committee of n for one provider in one window: the members with the lowest −ln(uᵢ)/weightᵢ, where uᵢ is
// drawn for each from the beacon (Efraimidis and Spirakis 2006, weighted sampling without replacement). The provider is never
// a member of its own. The lowest comes first; there are fewer than n when the roster has not so many. The order of the roster does not matter, and
// peers whose rosters differ in a few members draw committees that differ in as few.
func (r Roster) Draw(beacon Beacon, w Window, provider sign.Key, n int) Roster {
	type ticket struct {
		Member
		log uint64 // −log₂ u, logPoint bits after the point
		tie sign.Hash
	}
	tickets := make([]ticket, 0, len(r))
	for _, m := range r {
		if m.Key == provider || m.Weight == 0 {
			continue
		}
		h := sign.Sum([]byte("starling/committee/v1"), beacon.bytes(), w.bytes(), provider[:], m.Key[:])
		tickets = append(tickets, ticket{m, minusLog2(binary.LittleEndian.Uint64(h[:])), h})
	}
	slices.SortFunc(tickets, func(a, b ticket) int {
		// a.log/a.Weight against b.log/b.Weight, without dividing.
		ah, al := bits.Mul64(a.log, b.Weight)
		bh, bl := bits.Mul64(b.log, a.Weight)
		return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl), slices.Compare(a.tie[:], b.tie[:]))
	})
	out := make(Roster, 0, n)
	for _, t := range tickets[:min(n, len(tickets))] {
		out = append(out, t.Member)
	}
	return out
}

// Hash commits to the roster, whatever its order.
func (r Roster) Hash() sign.Hash {
	sorted := slices.SortedFunc(slices.Values(r), func(a, b Member) int { return slices.Compare(a.Key[:], b.Key[:]) })
	b := []byte("starling/roster/v1")
	for _, m := range sorted {
		b = append(b, m.Key[:]...)
		b = binary.LittleEndian.AppendUint64(b, m.Weight)
	}
	return sign.Sum(b)
}

// logPoint is how many bits of a logarithm stand after the point: seven before it are enough for 65.
const logPoint = 57

// minusLog2 is −log₂(x/2⁶⁴), at least 1 and 65 of nothing, in integers, so that every machine draws alike: the bits of a
// logarithm are what squaring carries over.
func minusLog2(x uint64) uint64 {
	if x == 0 {
		return 65 << logPoint
	}
	lead := bits.LeadingZeros64(x)
	m := x << lead // 1 ≤ m/2⁶³ < 2
	var part uint64
	for i := logPoint - 1; i >= 0; i-- {
		hi, lo := bits.Mul64(m, m)
		if hi>>63 == 1 { // the square is 2 or more
			part |= 1 << i
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	// log₂ x = 63 − lead + part; so 64 − that.
	return max(uint64(lead+1)<<logPoint-part, 1)
}

// Window numbers a window.
type Window uint64

func (w Window) bytes() []byte { return binary.LittleEndian.AppendUint64(nil, uint64(w)) }

// WindowOf is the window that a slot lies in, on a network whose windows have so many slots.
func WindowOf(slot market.Slot, slots uint64) Window { return Window(uint64(slot) / max(slots, 1)) }

// First is the first slot of the window.
func (w Window) First(slots uint64) market.Slot { return market.Slot(uint64(w) * slots) }
