package replica

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Billion is the unit of Odds: parts of one.
const Billion = 1_000_000_000

// Odds is a probability in billionths.
type Odds uint64

// Always is certainty.
const Always Odds = Billion

// Params are the rates and bounds of the checks of results.
type Params struct {
	// AdaptiveAfter is how many consecutive valid results a provider needs until not all of its results are replicated.
	// After V ≥ AdaptiveAfter of them a result is replicated with probability AdaptiveAfter/V.
	AdaptiveAfter uint32 `json:"adaptiveAfter"`
	// DelaySlots is how many slots after the commitment the block comes that decides: more than a fork may take back.
	DelaySlots uint64 `json:"delaySlots"`
	// PatienceSlots is how long a block, or one replica, is waited for.
	PatienceSlots uint64 `json:"patienceSlots"`
}

// DefaultParams returns the parameters of ../PROTOCOL.md. Patience, in slots, is for one replica.
func DefaultParams(patience uint64) Params {
	return Params{AdaptiveAfter: 10, DelaySlots: 4, PatienceSlots: patience}
}

// Check reports ErrTerms for parameters out of range.
func (p Params) Check() error {
	const most = 1 << 40
	switch {
	case p.AdaptiveAfter == 0 || p.AdaptiveAfter > MaxTrust:
		return fmt.Errorf("%w: adaptive after %d", ErrTerms, p.AdaptiveAfter)
	case p.DelaySlots == 0 || p.DelaySlots > most || p.PatienceSlots == 0 || p.PatienceSlots > most:
		return fmt.Errorf("%w: delay of %d and patience of %d slots", ErrTerms, p.DelaySlots, p.PatienceSlots)
	}
	return nil
}

// Odds is the probability that a result of a provider with record t is replicated: min(1, AdaptiveAfter/V), rounded up.
func (p Params) Odds(t Trust) Odds {
	v := uint64(min(t.Valid, MaxTrust))
	if v <= uint64(p.AdaptiveAfter) {
		return Always
	}
	return Odds((uint64(p.AdaptiveAfter)*Billion + v - 1) / v)
}

// MaxTrust bounds the record that counts, so that at least AdaptiveAfter in MaxTrust results are replicated.
const MaxTrust = 1000

// Trust is the record of one provider, as one buyer has it.
type Trust struct {
	Valid uint32 `json:"valid"`           // consecutive results that a replica agreed with; at most MaxTrust
	Wrong uint32 `json:"wrong,omitempty"` // results that a majority of replicas differed from; does not wrap
}

// Agreed is the record after a result that others agreed with.
func (t Trust) Agreed() Trust {
	t.Valid = min(t.Valid, MaxTrust-1) + 1
	return t
}

// Differed returns the record after a result that the majority contradicted: it starts at 0.
func (t Trust) Differed() Trust {
	t.Valid = 0
	if t.Wrong < ^uint32(0) {
		t.Wrong++
	}
	return t
}

// Nonce is a buyer's addition to a block's hash, drawn for each job before its first order.
type Nonce [32]byte

// OrderNonce is the nonce of the job's k-th order, counted from 0. It looks drawn, as every order's does, and commits
// to n: SHA-256("starling/replica/order/v1" ‖ n ‖ k u64), first 16 bytes.
func (n Nonce) OrderNonce(k uint64) (o market.Nonce) {
	h := sign.Sum([]byte("starling/replica/order/v1"), n[:], binary.LittleEndian.AppendUint64(nil, k))
	copy(o[:], h[:])
	return o
}

// Beacon is a block that did not exist when the result was committed.
type Beacon struct {
	Slot market.Slot `json:"slot"`
	Hash sign.Hash   `json:"hash"`
}

// draw mixes block, nonce and result: SHA-256(tag ‖ hash ‖ nonce ‖ lease ‖ output).
func draw(tag string, b Beacon, n Nonce, r Committed) sign.Hash {
	return sign.Sum([]byte(tag), b.Hash[:], n[:], r.Lease[:], r.Output[:])
}

// Drawn reports whether the block has the result replicated: the first eight bytes of the draw with tag
// "starling/replica/draw/v1", big-endian, are below odds/10⁹ of their range, rounded up.
func Drawn(odds Odds, b Beacon, n Nonce, r Committed) bool {
	if odds >= Always {
		return true
	}
	h := draw("starling/replica/draw/v1", b, n, r)
	limit, _ := bits.Div64(uint64(odds), 0, Billion)
	return binary.BigEndian.Uint64(h[:8]) <= limit && odds > 0
}
