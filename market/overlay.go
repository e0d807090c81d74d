package market

import (
	"crypto/ecdh"
	"encoding/hex"

	"github.com/starling-network/starling/market/sign"
)

// OverlayKey is the Curve25519 public key (RFC 7748, canonical) of one member of a cluster, its identity in the
// overlay.
type OverlayKey [32]byte

// String returns the hexadecimal form.
func (k OverlayKey) String() string { return hex.EncodeToString(k[:]) }

// IsZero reports whether no key was named.
func (k OverlayKey) IsZero() bool { return k == OverlayKey{} }

// MarshalText returns the hexadecimal form.
func (k OverlayKey) MarshalText() ([]byte, error) { return sign.Hash(k).MarshalText() }

// UnmarshalText reads the hexadecimal form.
func (k *OverlayKey) UnmarshalText(text []byte) error { return (*sign.Hash)(k).UnmarshalText(text) }

// Check refuses non-canonical encodings (RFC 7748 would read 2²⁵⁵ − 18 as 1) and points of small order, which give the
// same secret with every key. It returns ErrMalformed.
func (k OverlayKey) Check() error {
	if !k.canonical() {
		return malformed("overlay key", "%s… is not below 2²⁵⁵ − 19", k.String()[:8])
	}
	public, err := ecdh.X25519().NewPublicKey(k[:])
	if err != nil {
		return malformed("overlay key", "%v", err)
	}
	// A point of small order gives zero with every clamped scalar, which crypto/ecdh refuses.
	some, err := ecdh.X25519().NewPrivateKey(make([]byte, len(k)))
	if err != nil {
		return malformed("overlay key", "%v", err)
	}
	if _, err := some.ECDH(public); err != nil {
		return malformed("overlay key", "%s… is of small order", k.String()[:8])
	}
	return nil
}

// canonical reports whether the number is below p = 2²⁵⁵ − 19, little-endian.
func (k OverlayKey) canonical() bool {
	if k[31] != 0x7f {
		return k[31] < 0x7f
	}
	for _, b := range k[1:31] {
		if b != 0xff {
			return true
		}
	}
	return k[0] < 0xed
}

// OverlayNonce is the nonce of a lease after its provider named key for hold: the first 16 bytes of SHA-256 of
// "starling/overlay/v1" ‖ hold[16] ‖ key[32]. Buyer and provider sign it with the lease.
func OverlayNonce(hold HoldID, key OverlayKey) Nonce {
	h := sign.Sum([]byte("starling/overlay/v1"), hold[:], key[:])
	return Nonce(h[:len(Nonce{})])
}

// CheckMember reports whether buyer and provider both signed that key is the provider's in the overlay of a cluster.
// The lease is the first of its line: its successors carry no keys. It returns ErrMalformed or ErrBadSignature.
func CheckMember(d sign.Domain, l Lease, hold HoldID, key OverlayKey) error {
	if err := l.Check(d); err != nil {
		return err
	}
	if l.Core.Successor() {
		return malformed("member's lease", "successor lease: only the first lease's nonce names the overlay key")
	}
	if err := key.Check(); err != nil {
		return err
	}
	if l.Core.Nonce != OverlayNonce(hold, key) {
		return malformed("member's lease", "not signed for overlay key %s… under hold %s",
			key.String()[:8], hold.Short())
	}
	return nil
}
