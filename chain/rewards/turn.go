package rewards

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market/sign"
)

// turnsOfVote is how many turns a ballot is open for.
const turnsOfVote = 16

// TurnSlots is how many slots a turn has.
func TurnSlots(v account.Votes) uint64 { return max(v.VotingSlots/turnsOfVote, 1) }

// Voter is a provider that may put an epoch's rewards to the vote.
type Voter struct {
	Provider sign.Key // address of its account
	Bonded   uint64
}

// Turns determines the proposer of an epoch's rewards of one source. Turns continue indefinitely. Each is drawn
// independently, with a chance in proportion to bonded stake, so that bonding under several keys gains nothing.
type Turns struct {
	first, slots uint64
	seed         sign.Hash
	voters       []Voter
}

// NewTurns draws the turns of an epoch's rewards of a source; turn 0 begins in a slot. Block is the hash of the first
// block after the epoch. A bond counts if it is at least the minimum and was raised in the epoch's last slot or before,
// so before this hash existed. Address is a registration's address.
func NewTurns(
	v account.Votes, epoch uint64, source uint8, first uint64, block sign.Hash, all []account.Provider,
	address func(account.Provider) sign.Key,
) Turns {
	seed := binary.LittleEndian.AppendUint64([]byte{source}, epoch)
	t := Turns{first: first, slots: TurnSlots(v), seed: sign.Sum([]byte("starling/turns/v1"), block[:], seed)}
	for _, p := range all {
		if p.Bonded > 0 && p.Bonded >= v.LeastBond && p.Raised < v.EpochEnd(epoch) {
			t.voters = append(t.voters, Voter{address(p), p.Bonded})
		}
	}
	slices.SortFunc(t.voters, func(a, b Voter) int { return bytes.Compare(a.Provider[:], b.Provider[:]) })
	return t
}

// At is the turn that a slot is in, and whether it is in any.
func (t Turns) At(slot uint64) (turn uint64, ok bool) {
	if slot < t.first {
		return 0, false
	}
	return (slot - t.first) / t.slots, true
}

// Of returns the voter of a turn: the one with the least −log₂(u) / bonded, where u is drawn evenly from 0 to 1 for
// each voter and turn. It returns false if no voter has the minimum bond.
func (t Turns) Of(turn uint64) (sign.Key, bool) {
	var out sign.Key
	var least, weight uint64
	for _, v := range t.voters {
		h := sign.Sum([]byte("starling/turn/v1"), t.seed[:], binary.LittleEndian.AppendUint64(nil, turn), v.Provider[:])
		x := negLog2(binary.LittleEndian.Uint64(h[:]))
		if weight == 0 || quotientLess(x, v.Bonded, least, weight) {
			out, least, weight = v.Provider, x, v.Bonded
		}
	}
	return out, weight > 0
}

// quotientLess reports whether a/b < c/d.
func quotientLess(a, b, c, d uint64) bool {
	hi, lo := bits.Mul64(a, d)
	otherHi, otherLo := bits.Mul64(c, b)
	return hi < otherHi || hi == otherHi && lo < otherLo
}

// logBits is how many bits after the point negLog2 has.
const logBits = 40

// negLog2 is −log₂((n + 1) / 2⁶⁴) · 2⁴⁰, a hair too much by rounding: the same on every machine.
func negLog2(n uint64) uint64 {
	if n++; n == 0 { // 2⁶⁴
		return 0
	}
	shift := bits.LeadingZeros64(n)
	x := n << shift // from 1 up to 2, with 63 bits after the point
	log := uint64(63 - shift)
	for range logBits {
		hi, lo := bits.Mul64(x, x)
		log <<= 1
		if hi>>63 == 1 { // the square is 2 or more
			log, x = log|1, hi
		} else {
			x = hi<<1 | lo>>63
		}
	}
	return 64<<logBits - log
}

// Divisible is the part of a pool's balance to divide: its highest five bits. The rest stays for the next epoch, so
// that verifiers that read it a little later, after more fees, divide the same.
func Divisible(holds uint64) uint64 {
	low := max(bits.Len64(holds), 5) - 5
	return holds >> low << low
}
