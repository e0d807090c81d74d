package cluster

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// PrivateKey is the Curve25519 private key of one member in the overlay of its cluster, clamped (RFC 7748, section 5).
type PrivateKey [32]byte

// keyInfo separates these keys from other keys derived from a peer's seed.
const keyInfo = "starling/overlay"

// MemberKey is the private key of a peer in the cluster of one of its holds: HKDF-SHA256 of the peer's seed, with the
// hold as salt. It is derived from the peer's seed, so it is not stored, and differs for every hold.
func MemberKey(peer sign.Private, hold market.HoldID) PrivateKey {
	seed := peer.Seed()
	b, err := hkdf.Key(sha256.New, seed[:], hold[:], keyInfo, len(PrivateKey{}))
	if err != nil { // only for lengths that HKDF cannot give
		panic(fmt.Sprintf("deriving an overlay key: %v", err))
	}
	k := PrivateKey(b)
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k
}

// Public returns the member's public key.
func (k PrivateKey) Public() market.OverlayKey {
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil { // only for other lengths
		panic(fmt.Sprintf("an overlay key: %v", err))
	}
	return market.OverlayKey(private.PublicKey().Bytes())
}

// String names the public key only, so that a private key never lands in a log.
func (k PrivateKey) String() string { return "private key of " + k.Public().String() }

// GoString is String.
func (k PrivateKey) GoString() string { return k.String() }
