// Package fields writes and reads fixed little-endian layouts.
package fields

import (
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
)

// Data is the beginning of a layout. Each method appends one field and returns the longer Data.
type Data []byte

// U8 appends a byte.
func (d Data) U8(v uint8) Data { return append(d, v) }

// U16 appends two bytes, little-endian.
func (d Data) U16(v uint16) Data { return binary.LittleEndian.AppendUint16(d, v) }

// U32 appends four bytes, little-endian.
func (d Data) U32(v uint32) Data { return binary.LittleEndian.AppendUint32(d, v) }

// U64 appends eight bytes, little-endian.
func (d Data) U64(v uint64) Data { return binary.LittleEndian.AppendUint64(d, v) }

// Bool appends 1 for true and 0 for false.
func (d Data) Bool(v bool) Data {
	if v {
		return append(d, 1)
	}
	return append(d, 0)
}

// Key appends a key's 32 bytes.
func (d Data) Key(v sign.Key) Data { return append(d, v[:]...) }

// Hash appends a hash's 32 bytes.
func (d Data) Hash(v sign.Hash) Data { return append(d, v[:]...) }

// Bytes appends bytes as they are.
func (d Data) Bytes(v ...byte) Data { return append(d, v...) }

// Zeros appends n reserved bytes.
func (d Data) Zeros(n int) Data { return append(d, make([]byte, n)...) }

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

// Hash returns the next 32 bytes as a hash.
func (r *Reader) Hash() sign.Hash { return sign.Hash(r.Take(sign.HashSize)) }

// Zeros takes n reserved bytes. It sets Bad if one is not zero.
func (r *Reader) Zeros(n int) {
	for _, b := range r.Take(n) {
		r.Fail(b != 0)
	}
}

// Done reports whether every field was there and none failed, and no byte is left.
func (r *Reader) Done() bool { return !r.Bad && len(r.Rest) == 0 }
