package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"filippo.io/edwards25519"
	"github.com/mr-tron/base58"
)

// Sizes of the fixed forms, in bytes.
const (
	KeySize       = 32
	SignatureSize = 64
	HashSize      = 32
)

// maxBase58 bounds the text forms before decoding, which is quadratic: 64 bytes take at most 88 characters.
const maxBase58 = 88

// Key is an Ed25519 public key in its 32-byte encoding, which is also a Solana address. A Key may be any 32 bytes;
// Check reports whether it may sign.
type Key [KeySize]byte

// Signature is an Ed25519 signature: R[32] ‖ S[32].
type Signature [SignatureSize]byte

// Hash is a SHA-256 digest.
type Hash [HashSize]byte

// ParseKey reads the base58 form. It does not Check: an owner's address may lie off the curve (a multisig).
func ParseKey(text string) (Key, error) {
	var k Key
	err := decodeBase58(k[:], text, ErrKeyText)
	return k, err
}

func decodeBase58(into []byte, text string, bad error) error {
	if len(text) == 0 || len(text) > maxBase58 {
		return bad
	}
	raw, err := base58.Decode(text)
	if err != nil || len(raw) != len(into) {
		return bad
	}
	copy(into, raw)
	return nil
}

// String returns the base58 form, as Solana writes addresses.
func (k Key) String() string { return base58.Encode(k[:]) }

// Short returns the first eight characters of String, for tables and logs.
func (k Key) Short() string { return k.String()[:8] }

// IsZero reports whether the key is unset. (All zeros is also Solana's system program, and a point of order 4.)
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText returns the base58 form.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the base58 form.
func (k *Key) UnmarshalText(text []byte) error {
	parsed, err := ParseKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// String returns the base58 form.
func (s Signature) String() string { return base58.Encode(s[:]) }

// IsZero reports whether the signature is unset.
func (s Signature) IsZero() bool { return s == Signature{} }

// MarshalText returns the base58 form.
func (s Signature) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the base58 form.
func (s *Signature) UnmarshalText(text []byte) error {
	var parsed Signature
	if err := decodeBase58(parsed[:], string(text), ErrSignatureText); err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Sum returns SHA-256 over the parts, one after the other with nothing between them.
func Sum(parts ...[]byte) Hash {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	var out Hash
	h.Sum(out[:0])
	return out
}

// ParseHash reads the hexadecimal form.
func ParseHash(text string) (Hash, error) {
	var h Hash
	if len(text) != 2*HashSize {
		return h, ErrHashText
	}
	if _, err := hex.Decode(h[:], []byte(text)); err != nil {
		return Hash{}, ErrHashText
	}
	return h, nil
}

// String returns the hexadecimal form.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first eight hexadecimal digits, for tables and logs.
func (h Hash) Short() string { return hex.EncodeToString(h[:4]) }

// IsZero reports whether the hash is unset.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText returns the hexadecimal form.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the hexadecimal form.
func (h *Hash) UnmarshalText(text []byte) error {
	parsed, err := ParseHash(string(text))
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

// smallOrderY holds the y coordinates, little-endian without the sign bit, of the eight points of order 1, 2, 4 and 8.
var smallOrderY = [5][32]byte{
	{},     // order 4
	{0: 1}, // order 1, the identity
	{0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, // order 2
	{0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
		0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a}, // order 8
	{0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
		0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05}, // order 8
}

// checkPoint refuses encodings of y ≥ p = 2^255-19 and points of small order. It does not ask whether y is on the
// curve.
func checkPoint(b *[32]byte) error {
	y := *b
	y[31] &= 0x7f
	if y[31] == 0x7f && y[0] >= 0xed {
		high := true
		for _, v := range y[1:31] {
			if v != 0xff {
				high = false
				break
			}
		}
		if high {
			return ErrNotCanonical
		}
	}
	for i := range smallOrderY {
		if y == smallOrderY[i] {
			return ErrSmallOrder
		}
	}
	return nil
}

// Check reports whether the key may sign: canonical, of large order, and on the curve.
// It takes some three microseconds; Verify does not need it first.
func (k Key) Check() error {
	b := [32]byte(k)
	if err := checkPoint(&b); err != nil {
		return fmt.Errorf("key %s: %w", k, err)
	}
	if _, err := new(edwards25519.Point).SetBytes(b[:]); err != nil {
		return fmt.Errorf("key %s: %w", k, ErrNotOnCurve)
	}
	return nil
}
