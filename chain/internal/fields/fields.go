// Package fields reads fixed little-endian layouts.
package fields

import (
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Reader takes fields off the front of Rest. After the first that is missing, all are zero and Bad is set.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Take returns the next n bytes, which share Rest's memory.
func (r *Reader) Take(n int) []byte {
	if r.Bad || len(r.Rest) < n {
		r.Bad = true
		return make([]byte, n)
	}
	out := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return out
}

// Fail sets Bad if when is true.
func (r *Reader) Fail(when bool) { r.Bad = r.Bad || when }

// U8 returns the next byte.
func (r *Reader) U8() uint8 { return r.Take(1)[0] }

// U16 returns the next two bytes, little-endian.
func (r *Reader) U16() uint16 { return binary.LittleEndian.Uint16(r.Take(2)) }

// U32 returns the next four bytes, little-endian.
func (r *Reader) U32() uint32 { return binary.LittleEndian.Uint32(r.Take(4)) }

// U64 returns the next eight bytes, little-endian.
func (r *Reader) U64() uint64 { return binary.LittleEndian.Uint64(r.Take(8)) }

// Key returns the next 32 bytes as a key.
func (r *Reader) Key() sign.Key { return sign.Key(r.Take(sign.KeySize)) }

// Count bounds the number of elements that follow: more than limit fail, and none are read then.
func (r *Reader) Count(n, limit int) int {
	if r.Fail(n > limit); r.Bad {
		return 0
	}
	return n
}

// Bytes returns the next n bytes, at most limit.
func (r *Reader) Bytes(n, limit int) []byte { return r.Take(r.Count(n, limit)) }

// KeySet returns a set of voucher keys.
func (r *Reader) KeySet() market.KeySet {
	head := r.Take(2)
	raw := append(slices.Clone(head), r.Take(sign.KeySize*r.Count(int(head[1]), market.MaxVoucherKeys))...)
	ks, err := market.UnmarshalKeySet(raw)
	r.Fail(err != nil)
	return ks
}
