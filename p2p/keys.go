package p2p

import (
	"encoding/hex"
	"slices"
)

// Go's crypto/ed25519 verifies signatures under keys of small order, which can be forged, and under encodings of y that
// are not reduced. Both would let a party use a key without holding its private half. The small-order points of
// edwards25519 have five values of y (RFC 7748 and RFC 8032 give the curve): 0 and ±1 (orders 4, 1, 2) and the two of
// order 8.
var smallOrder = [...][32]byte{
	littleEndian("0000000000000000000000000000000000000000000000000000000000000000"),
	littleEndian("0000000000000000000000000000000000000000000000000000000000000001"),
	littleEndian("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffec"), // p − 1
	littleEndian("05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826"),
	littleEndian("7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7"),
}

// prime is 2^255 − 19, the field's modulus.
var prime = littleEndian("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed")

// checkKey refuses keys of small order and encodings that are not canonical.
func checkKey(key [32]byte) error {
	key[31] &= 0x7f // the sign of x
	if !less(key, prime) || slices.Contains(smallOrder[:], key) {
		return ErrWeakKey
	}
	return nil
}

// less compares two little-endian numbers.
func less(a, b [32]byte) bool {
	for i := 31; i >= 0; i-- {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func littleEndian(bigEndian string) (out [32]byte) {
	b, err := hex.DecodeString(bigEndian)
	if err != nil || len(b) != len(out) {
		panic("p2p: bad constant " + bigEndian)
	}
	slices.Reverse(b)
	return [32]byte(b)
}
