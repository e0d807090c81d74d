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
	Appeal    = 11 // of an appeal, which a provider requests after a failure
)

// Certify is how many of a committee of n must pass a record: more than two thirds. 5 of 7, 8 of 11, 1 of 1.
func Certify(n int) int { return 2*n/3 + 1 }

// Lots is the number of committees of each size in a window. A provider's key determines its committee. Keys are free:
// with a committee for each key, a provider could generate keys until it draws a colluding one. With Lots committees,
// it can choose among Lots only.
const Lots = 8

// LotOf is the number of the committee that judges a provider, below Lots.
func LotOf(provider sign.Key) byte {
	h := sign.Sum([]byte("starling/lot/v1"), provider[:])
	return h[0] % Lots
}

// Bounds of a roster.
const (
	// MinBonded is the minimum number of members with a weight. With fewer, there are no audits.
	MinBonded = 3
	// MaxRoster is the maximum number of members: the ones with the greatest weight.
	MaxRoster = 4096
	// MemberSize is the length of a member, bytes.
	MemberSize = 2*sign.KeySize + 8
)

// Member is a registered peer, with its owner and the amount that it bonded for at least a window.
type Member struct {
	Key    sign.Key `json:"key"`
	Owner  sign.Key `json:"owner"`  // the wallet that the registration belongs to
	Weight uint64   `json:"weight"` // bonded, base units; 0: it is never drawn
}

// Roster is the set from which committees are drawn. It also has the peers without weight that belong to an owner in
// the set.
type Roster []Member

// Check refuses, with ErrRoster, a roster that has a peer twice or no peer with a weight.
func (r Roster) Check() error {
	seen, some := map[sign.Key]bool{}, false
	for _, m := range r {
		if seen[m.Key] {
			return fmt.Errorf("%w: %s: duplicate", ErrRoster, m.Key.Short())
		}
		seen[m.Key] = true
		some = some || m.Weight > 0
	}
	if !some {
		return fmt.Errorf("%w: total bond: 0", ErrRoster)
	}
	return nil
}

// Registration is a peer's entry on chain.
type Registration struct {
	Peer, Owner sign.Key
	Bonded      uint64      // base units
	Since       market.Slot // the last of: its registration, a change of its peer key, a rise of its bond
	Slashed     bool
}

// Mature returns the roster of a window from the registrations of its network. It includes registrations that have not
// changed for one audit interval, on average, before the window (Instants.Ago). So once the beacon is known, a peer can
// leave or lose weight, but not enter or gain weight. Of two registrations of one peer the older one counts. Members
// are ascending by key. It returns ErrRoster if fewer than MinBonded have a weight.
func Mature(all []Registration, w Window, i Instants) (Roster, error) {
	last := i.Ago(w, 1).First(i.Slots)
	all = slices.Clone(all)
	for i := range all {
		if all[i].Slashed {
			all[i].Bonded = 0
		}
	}
	slices.SortStableFunc(all, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), slices.Compare(a.Owner[:], b.Owner[:]),
			cmp.Compare(a.Bonded, b.Bonded))
	})
	var r Roster
	seen, owners, bonded := map[sign.Key]bool{}, map[sign.Key]bool{}, 0
	for _, x := range all {
		if x.Since > last || seen[x.Peer] {
			continue
		}
		seen[x.Peer] = true
		if x.Bonded > 0 {
			owners[x.Owner] = true
			bonded++
		}
		r = append(r, Member{x.Peer, x.Owner, x.Bonded})
	}
	if bonded < MinBonded {
		return nil, fmt.Errorf("%w: %d peers have bonded a stake for as long as an audit takes to come, "+
			"%d are needed before anything is audited",
			ErrRoster, bonded, MinBonded)
	}
	r = slices.DeleteFunc(r, func(m Member) bool { return m.Weight == 0 && !owners[m.Owner] })
	if len(r) > MaxRoster {
		slices.SortFunc(r, func(a, b Member) int {
			return cmp.Or(cmp.Compare(b.Weight, a.Weight), slices.Compare(a.Key[:], b.Key[:]))
		})
		r = r[:MaxRoster]
	}
	slices.SortFunc(r, func(a, b Member) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return r, nil
}

// Marshal returns the members, in their order: n × ( key[32] ‖ owner[32] ‖ weight u64 ).
func (r Roster) Marshal() []byte {
	out := make([]byte, 0, MemberSize*len(r))
	for _, m := range r {
		out = binary.LittleEndian.AppendUint64(append(append(out, m.Key[:]...), m.Owner[:]...), m.Weight)
	}
	return out
}

// UnmarshalRoster decodes members, strictly ascending by key, without trailing bytes. It returns market.ErrMalformed or
// ErrRoster otherwise.
func UnmarshalRoster(b []byte) (Roster, error) {
	if len(b)%MemberSize != 0 || len(b) > MaxRoster*MemberSize {
		return nil, malformed("roster", "%d bytes", len(b))
	}
	var r Roster
	for ; len(b) > 0; b = b[MemberSize:] {
		m := Member{sign.Key(b[:32]), sign.Key(b[32:64]), binary.LittleEndian.Uint64(b[64:])}
		if n := len(r); n > 0 && slices.Compare(r[n-1].Key[:], m.Key[:]) >= 0 {
			return nil, malformed("roster", "%s: duplicate, or not in order", m.Key.Short())
		}
		r = append(r, m)
	}
	return r, r.Check()
}

// Draw returns the committee of n for one provider in one window: the members with the lowest −ln(uᵢ)/weightᵢ, where uᵢ
// is drawn for each from the beacon and the provider's lot (Efraimidis and Spirakis 2006, weighted sampling without
// replacement). The provider is never a member of its own, nor is a peer of its owner. The lowest comes first; a small
// roster gives fewer than n. The order of the roster does not matter. Rosters that differ in a few members give
// committees that differ in at most as many.
func (r Roster) Draw(beacon Beacon, w Window, provider sign.Key, n int) Roster {
	type ticket struct {
		Member
		log uint64 // −log₂ u, logPoint bits after the point
		tie sign.Hash
	}
	own := slices.IndexFunc(r, func(m Member) bool { return m.Key == provider })
	lot := LotOf(provider)
	tickets := make([]ticket, 0, len(r))
	for _, m := range r {
		if m.Key == provider || m.Weight == 0 || own >= 0 && m.Owner == r[own].Owner {
			continue
		}
		h := sign.Sum([]byte("starling/committee/v2"), beacon.bytes(), w.bytes(), []byte{lot}, m.Key[:])
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

// logPoint is how many bits of a logarithm stand after the point: seven before it are enough for 65.
const logPoint = 57

// minusLog2 is −log₂(x/2⁶⁴), at least 1, and 65 for x = 0. It is computed in integers, so that every machine draws
// alike: squaring carries over the bits of the logarithm.
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

// WindowOf is the window of a slot, on a network with windows of the given number of slots.
func WindowOf(slot market.Slot, slots uint64) Window { return Window(uint64(slot) / max(slots, 1)) }

// First is the first slot of the window.
func (w Window) First(slots uint64) market.Slot { return market.Slot(uint64(w) * slots) }
