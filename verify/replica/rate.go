package replica

import (
	"encoding/binary"
	"fmt"
	"math/big"
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

// Params say how results are checked.
type Params struct {
	// CostMille is c, thousandths of the price: what a provider saves by giving a false result. A buyer does not know what computing
	// costs a provider, and nobody works below its price for long, so that the price itself is the safe value.
	CostMille uint64 `json:"costMille"`
	// ColludingMille is g, thousandths: the part of the providers that would give the same false result.
	ColludingMille uint64 `json:"colludingMille"`
	// DetectMille is d, thousandths: how often comparing with an honest replica shows a false result.
	DetectMille uint64 `json:"detectMille"`
	// AdaptiveAfter is how many consecutive valid results a provider needs until not all of them are replicated.
	AdaptiveAfter uint32 `json:"adaptiveAfter"`
	// DelaySlots is how many slots after the commitment the block comes that decides: more than a fork may take back.
	DelaySlots uint64 `json:"delaySlots"`
	// PatienceSlots is how long a block, or one replica, is waited for.
	PatienceSlots uint64 `json:"patienceSlots"`
}

// DefaultParams are those of ../PROTOCOL.md on a network with slots of so many milliseconds; patience is for one replica.
func DefaultParams(patience uint64) Params {
	return Params{CostMille: 1000, ColludingMille: 200, DetectMille: 990, AdaptiveAfter: 10, DelaySlots: 4, PatienceSlots: patience}
}

// Check refuses what no check works with. ErrTerms.
func (p Params) Check() error {
	const most = 1 << 40
	switch {
	case p.CostMille == 0 || p.CostMille > 1000:
		return fmt.Errorf("%w: c of %d thousandths", ErrTerms, p.CostMille)
	case p.ColludingMille >= 1000:
		return fmt.Errorf("%w: g of %d thousandths", ErrTerms, p.ColludingMille)
	case p.DetectMille == 0 || p.DetectMille > 1000:
		return fmt.Errorf("%w: d of %d thousandths", ErrTerms, p.DetectMille)
	case p.AdaptiveAfter == 0 || p.AdaptiveAfter > MaxTrust:
		return fmt.Errorf("%w: adaptive after %d", ErrTerms, p.AdaptiveAfter)
	case p.DelaySlots == 0 || p.DelaySlots > most || p.PatienceSlots == 0 || p.PatienceSlots > most:
		return fmt.Errorf("%w: delay of %d and patience of %d slots", ErrTerms, p.DelaySlots, p.PatienceSlots)
	}
	return nil
}

// Least is p* for a result of so much price by a provider with so much at stake, rounded up: at this rate or a higher one a
// false result has no higher value than an honest one, whatever the provider's record. A provider with nothing at stake is
// always checked.
func (p Params) Least(price, stake market.Amount) Odds {
	// c/((1−g)²·d·(R+S)) with c = R·CostMille/10³, and g and d in thousandths.
	num := new(big.Int).SetUint64(uint64(price))
	num.Mul(num, new(big.Int).SetUint64(p.CostMille)).Mul(num, big.NewInt(1_000_000*Billion))
	den := new(big.Int).SetUint64(uint64(price))
	den.Add(den, new(big.Int).SetUint64(uint64(stake)))
	honest := 1000 - p.ColludingMille
	den.Mul(den, new(big.Int).SetUint64(honest*honest*p.DetectMille))
	if den.Sign() == 0 || stake == 0 {
		return Always
	}
	q, rest := num.QuoRem(num, den, new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsUint64() {
		return Always
	}
	return min(Odds(q.Uint64()), Always)
}

// Risk is what the chain says of a provider's stake and of those who would vote to take it.
type Risk struct {
	Stake       uint64 // of the provider, without what is unbonding: that may be gone by the time
	Own         uint64 // bonded by the provider and all others of its owner: these do not vote against themselves
	Bonded      uint64 // in the network, by all
	LeastBonded uint64 // that must be for a vote; 0: nothing is voted on
}

// Taken is S: what the provider loses for a false result. Nothing where no vote could take it: nothing is voted on, too little is bonded,
// or its owner has a third of what is, so that no more than two thirds are left.
func (r Risk) Taken() market.Amount {
	if r.LeastBonded == 0 || r.Bonded < r.LeastBonded || r.Own >= r.Bonded/3+min(r.Bonded%3, 1) {
		return 0
	}
	return market.Amount(r.Stake)
}

// Odds is how likely a result of the provider is replicated: max(p*, 1/V), and certainly below AdaptiveAfter.
func (p Params) Odds(price, stake market.Amount, t Trust) Odds {
	if t.Valid < p.AdaptiveAfter {
		return Always
	}
	v := uint64(min(t.Valid, MaxTrust))
	return max(p.Least(price, stake), Odds((Billion+v-1)/v))
}

// MaxTrust bounds the record that counts, so that one result in so many is replicated for ever.
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

// Differed is the record after one that a majority differed from: it begins anew.
func (t Trust) Differed() Trust {
	t.Valid = 0
	if t.Wrong < ^uint32(0) {
		t.Wrong++
	}
	return t
}

// Nonce is what a buyer adds to a block's hash, drawn for each job before its first order.
type Nonce [32]byte

// OrderNonce is the nonce of the job's k-th order, counted from 0. It looks drawn, as every order's does, and commits to n:
// SHA-256("starling/replica/order/v1" ‖ n ‖ k u64), first 16 bytes.
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

// Drawn says whether the block has the result replicated: the first eight bytes of the draw with tag "starling/replica/draw/v1",
// big-endian, are below odds/10⁹ of their range, rounded up.
func Drawn(odds Odds, b Beacon, n Nonce, r Committed) bool {
	if odds >= Always {
		return true
	}
	h := draw("starling/replica/draw/v1", b, n, r)
	limit, _ := bits.Div64(uint64(odds), 0, Billion)
	return binary.BigEndian.Uint64(h[:8]) <= limit && odds > 0
}
