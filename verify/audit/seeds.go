package audit

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// NonceSize is the size of a member's nonce, bytes.
const NonceSize = 16

// Nonce is a member's part of a seed. Its three nonces are a chain: the third is random, each other one is Before of
// the next, and they are given first to last. So the first determines the others: a member can withhold later nonces
// and cannot choose them.
type Nonce [NonceSize]byte

// Before is the nonce that was given before: the first 16 bytes of SHA-256( "starling/audit/nonce/v1" ‖ nonce ).
func (n Nonce) Before() Nonce {
	h := sign.Sum([]byte("starling/audit/nonce/v1"), n[:])
	return Nonce(h[:NonceSize])
}

// Chain is a member's nonces in the order in which they are given, made of the third, which must be random.
func Chain(third Nonce) [3]Nonce {
	second := third.Before()
	return [3]Nonce{second.Before(), second, third}
}

// MarshalText returns the hexadecimal form.
func (n Nonce) MarshalText() ([]byte, error) {
	var wide sign.Hash
	copy(wide[:], n[:])
	return []byte(wide.String()[:2*NonceSize]), nil
}

// Given is one member's nonce in one of the three rounds.
type Given struct {
	Member sign.Key
	Nonce  Nonce
}

// mix hashes the nonces of all members, independently of their order.
func mix(what string, given []Given, parts ...[]byte) sign.Hash {
	sorted := slices.SortedFunc(slices.Values(given), func(a, b Given) int {
		return slices.Compare(a.Member[:], b.Member[:])
	})
	b := []byte("starling/audit/" + what + "/v1")
	for _, p := range parts {
		b = append(b, p...)
	}
	for _, g := range sorted {
		b = append(b, g.Member[:]...)
		b = append(b, g.Nonce[:]...)
	}
	return sign.Sum(b)
}

// Target is the object of an audit: a unit, in a window, with the number of the attempt.
type Target struct {
	Provider sign.Key
	Unit     market.UnitID
	Window   Window
	Attempt  uint8
}

// ProductSeed is the seed of a unit's products, of the beacon and all first nonces.
func ProductSeed(beacon Beacon, t Target, first []Given) sign.Hash {
	return mix("product", first, beacon.bytes(), t.Provider[:], t.Unit[:], t.Window.bytes(), []byte{t.Attempt})
}

// WalkSeed is where a unit's walkers start, of its products' root and all second nonces.
func WalkSeed(products sign.Hash, root sign.Hash, second []Given) sign.Hash {
	return mix("walk", second, products[:], root[:])
}

// Drawn returns the leaves that a unit must open, drawn from the walk's seed. The seed is unpredictable before the
// products' root is known.
func Drawn(walk sign.Hash, s challenge.Shape) []uint32 {
	return challenge.Draw(sign.Sum([]byte("starling/audit/draw/v1"), walk[:]), s.Leaves(), challenge.Openings)
}

// Pick is which value of opening i, in the order of Drawn, is computed again.
func Pick(walk sign.Hash) func(i int) int {
	var picks []byte
	for at := byte(0); len(picks) < challenge.Openings; at++ {
		h := sign.Sum([]byte("starling/audit/pick/v1"), walk[:], []byte{at})
		picks = append(picks, h[:]...)
	}
	return func(i int) int { return int(picks[i] % challenge.LeafWords) }
}

// Walkers returns the walkers that a unit must show, drawn from its walk's root and all third nonces.
func Walkers(walk, root sign.Hash, w challenge.Walk, third []Given) []uint32 {
	return challenge.Draw(mix("walkers", third, walk[:], root[:]), int(w.Walkers), challenge.Ends)
}

// DatasetSeed is the seed of a unit's dataset in an era of windows. The dataset is unchanged during the era, and cannot
// be created before it.
func DatasetSeed(beacon Beacon, provider sign.Key, unit market.UnitID) sign.Hash {
	return sign.Sum([]byte("starling/audit/dataset/v1"), beacon.bytes(), provider[:], unit[:])
}
