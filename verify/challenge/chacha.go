package challenge

import (
	"encoding/binary"
	"math/bits"

	"github.com/starling-network/starling/market/sign"
)

// BlockSize is the size of a generator block, bytes.
const BlockSize = 64

// Generator is ChaCha with 8 rounds under one key, addressed by block. The zero value has the zero key.
type Generator struct{ key [8]uint32 }

// NewGenerator takes the key from 32 bytes, little-endian.
func NewGenerator(key sign.Hash) Generator {
	var g Generator
	for i := range g.key {
		g.key[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	return g
}

// ProductKey is the key of the generator of the matrices of a seed.
func ProductKey(seed sign.Hash) sign.Hash { return sign.Sum([]byte("starling/product/v1"), seed[:]) }

// ProductGenerator is the generator of the matrices of a seed.
func ProductGenerator(seed sign.Hash) Generator { return NewGenerator(ProductKey(seed)) }

// The four constant words of ChaCha, "expand 32-byte k".
const (
	c0 = 0x61707865
	c1 = 0x3320646e
	c2 = 0x79622d32
	c3 = 0x6b206574
)

// block gives the sixteen words at a counter and two more words of place.
func (g *Generator) block(out *[16]uint32, counter uint64, w14, w15 uint32) {
	x0, x1, x2, x3 := uint32(c0), uint32(c1), uint32(c2), uint32(c3)
	x4, x5, x6, x7 := g.key[0], g.key[1], g.key[2], g.key[3]
	x8, x9, x10, x11 := g.key[4], g.key[5], g.key[6], g.key[7]
	x12, x13, x14, x15 := uint32(counter), uint32(counter>>32), w14, w15
	for range 4 { // a column round and a diagonal round each
		x0, x4, x8, x12 = quarter(x0, x4, x8, x12)
		x1, x5, x9, x13 = quarter(x1, x5, x9, x13)
		x2, x6, x10, x14 = quarter(x2, x6, x10, x14)
		x3, x7, x11, x15 = quarter(x3, x7, x11, x15)
		x0, x5, x10, x15 = quarter(x0, x5, x10, x15)
		x1, x6, x11, x12 = quarter(x1, x6, x11, x12)
		x2, x7, x8, x13 = quarter(x2, x7, x8, x13)
		x3, x4, x9, x14 = quarter(x3, x4, x9, x14)
	}
	out[0], out[1], out[2], out[3] = x0+c0, x1+c1, x2+c2, x3+c3
	out[4], out[5], out[6], out[7] = x4+g.key[0], x5+g.key[1], x6+g.key[2], x7+g.key[3]
	out[8], out[9], out[10], out[11] = x8+g.key[4], x9+g.key[5], x10+g.key[6], x11+g.key[7]
	out[12], out[13], out[14], out[15] = x12+uint32(counter), x13+uint32(counter>>32), x14+w14, x15+w15
}

func quarter(a, b, c, d uint32) (uint32, uint32, uint32, uint32) {
	a += b
	d = bits.RotateLeft32(d^a, 16)
	c += d
	b = bits.RotateLeft32(b^c, 12)
	a += b
	d = bits.RotateLeft32(d^a, 8)
	c += d
	b = bits.RotateLeft32(b^c, 7)
	return a, b, c, d
}

// Matrix is one of the two factors of a product.
type Matrix uint32

// The factors: A by rows, B by columns.
const (
	A Matrix = iota
	B
)

// Line writes row i of A, or column i of B, of product t. len(dst) must be a multiple of BlockSize.
func (g *Generator) Line(dst []byte, m Matrix, t, i uint32) {
	var words [16]uint32
	for at := 0; at < len(dst); at += BlockSize {
		g.block(&words, uint64(at/BlockSize), 2*t+uint32(m), i)
		b := dst[at : at+BlockSize]
		for k, w := range words {
			binary.LittleEndian.PutUint32(b[4*k:], w)
		}
	}
}
