package rewards

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of guardians' rewards.
const (
	// MaxGuarded is how many claims a table has at most, MaxGuardedBy how many a guardian shows: the largest.
	MaxGuarded   = 1 << 14
	MaxGuardedBy = 1 << 10
	// LeastGuardians is the minimum number of signers for a voucher to count as guarded: a single one may be the buyer.
	LeastGuardians = 2
)

// Guarded is a claim that the chain paid under a voucher of several keys, read from its transaction: the voucher's
// signers, and the amount that left the escrow. It is rewarded once, in the epoch of its slot, even if the escrow is
// closed since.
type Guarded struct {
	ID   sign.Signature `json:"id"` // of the transaction
	Slot market.Slot    `json:"slot"`
	Mint sign.Key       `json:"mint"`
	Net  uint64         `json:"net"`  // that the provider was paid, without the fee
	Keys []sign.Key     `json:"keys"` // that signed: LeastGuardians to program.MaxSignatures, strictly ascending
}

// In reports whether a claim counts in an epoch.
func (g Guarded) In(v account.Votes, epoch uint64) bool {
	end := v.EpochEnd(epoch)
	return v.On() && end != math.MaxUint64 && uint64(g.Slot) < end && uint64(g.Slot) >= end-v.EpochSlots
}

// Counts reports whether enough keys signed for them to be guardians.
func (g Guarded) Counts() bool {
	return len(g.Keys) >= LeastGuardians && len(g.Keys) <= svm.MaxSignatures && g.Net > 0
}

// Claim is a line about a claim in a table.
type Claim struct {
	ID  sign.Signature
	Net uint64
}

func (g Guarded) claim() Claim { return Claim{g.ID, g.Net} }

// Largest are the n largest of claims, each once, by their names.
func Largest(gs []Guarded, n int) []Guarded {
	gs = slices.Clone(gs)
	byID := func(a, b Guarded) int { return bytes.Compare(a.ID[:], b.ID[:]) }
	slices.SortFunc(gs, byID)
	gs = slices.CompactFunc(gs, func(a, b Guarded) bool { return a.ID == b.ID })
	if len(gs) > n {
		slices.SortStableFunc(gs, func(a, b Guarded) int { return cmp.Compare(b.Net, a.Net) })
		gs = gs[:n]
		slices.SortFunc(gs, byID)
	}
	return gs
}

// WithGuarded is the table with the largest of these claims, which count in its epoch.
func (t Table) WithGuarded(gs []Guarded) Table {
	t.Claims = nil
	for _, g := range Largest(gs, MaxGuarded) {
		t.Claims = append(t.Claims, g.claim())
	}
	return t
}

// CompareGuarded compares the claims of a table with the verifier's, and returns the unknown ones. The verifier must
// check these on chain. It returns ErrProof if a claim differs from the chain's. It returns ErrShort if a guardian's
// claims sum to more than a tenth less than the verifier's, in a table with room for them.
func (t Table) CompareGuarded(mine []Guarded) (unseen []Claim, err error) {
	known := map[sign.Signature]Guarded{}
	sums, has := map[sign.Key]uint64{}, map[sign.Key]uint64{}
	add := func(to map[sign.Key]uint64, g Guarded) {
		for _, k := range g.Keys {
			sum, over := bits.Add64(to[k], g.Net, 0)
			to[k] = sum | -over // at most 2⁶⁴ − 1
		}
	}
	for _, g := range Largest(mine, len(mine)) {
		known[g.ID] = g
		add(sums, g)
	}
	for _, c := range t.Claims {
		g, here := known[c.ID]
		switch {
		case !here:
			unseen = append(unseen, c)
		case g.Net != c.Net:
			return nil, fmt.Errorf("%w: claim %s paid %d, not %d", ErrProof, c.ID, g.Net, c.Net)
		default:
			add(has, g)
		}
	}
	if len(t.Claims) == MaxGuarded {
		return unseen, nil
	}
	for k, sum := range sums {
		if has[k] < sum-sum/shortBy {
			return nil, fmt.Errorf("%w: claims of guardian %s: got %d, the table has %d",
				ErrShort, k.Short(), sum, has[k])
		}
	}
	return unseen, nil
}

// Guards is the work of guardians of orders in the mint of a pool: the claims of a table, and the network's fee on a
// claim.
type Guards struct {
	Terms  account.MintTerms
	Claims []Guarded
}

const (
	whole = 10_000
	// guardPart: guardians get half of their claim's contribution to the pool, and at most half of a pool.
	guardPart = 2
	// maxPart bounds the reward for one claim, so that a table's sum is less than 2⁶³.
	maxPart = 1 << 48
)

// part is the maximum total reward of a claim's guardians: half of the pool's share of its fee, which is exactly net ·
// fee / (whole − fee).
func (g Guards) part(net uint64) uint64 {
	fee := uint64(g.Terms.FeeBps)
	if fee >= whole {
		return 0
	}
	return min(share(share(net, fee, whole-fee), uint64(min(g.Terms.PoolBps, whole)), whole)/guardPart, maxPart)
}

// Of is the number of claims that a guardian signed, and its reward for them if the pool has enough.
func (g Guards) Of(guardian sign.Key) (claims int, amount uint64) {
	for _, c := range Largest(g.Claims, MaxGuarded) {
		if c.Counts() && slices.Contains(c.Keys, guardian) {
			claims++
			amount += g.part(c.Net) / uint64(len(c.Keys))
		}
	}
	return claims, amount
}

// divide computes the guardians' rewards from a pool. Signers of a claim share its part equally; all rewards shrink if
// there is not enough.
func (g Guards) divide(pool uint64, to Payout) (amounts map[sign.Key]uint64, rest uint64) {
	amounts = map[sign.Key]uint64{}
	var all uint64
	for _, c := range Largest(g.Claims, MaxGuarded) {
		if !c.Counts() {
			continue
		}
		each := g.part(c.Net) / uint64(len(c.Keys))
		for _, k := range c.Keys {
			if wallet, ok := to(k); ok && each > 0 {
				amounts[wallet] += each
				all += each
			}
		}
	}
	rest = pool
	for wallet, a := range amounts {
		if most := pool / guardPart; all > most {
			a = share(most, a, all)
		}
		amounts[wallet] = a
		rest -= a
	}
	return amounts, rest
}
