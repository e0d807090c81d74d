package challenge

import (
	"encoding/binary"
	"fmt"
)

// Sizes of the commitment.
const (
	TileSide  = 64                              // rows and columns of a tile
	LeafWords = 32                              // values in a leaf
	LeafSize  = 4 * LeafWords                   // bytes
	TileLeafs = TileSide * TileSide / LeafWords // leaves of a tile: 128
	tileLevel = 7                               // the level of the tree on which a tile is one node
	ShapeSize = 16                              // bytes of a shape's layout
)

// Bounds of a shape.
const (
	MaxSide = 1 << 15 // rows and columns of a product
	// K: the length of a row of A. |C| ≤ K·2¹⁴ = 2²⁹ fits int32, and the program can compute an entry
	MaxDepth  = 1 << 15
	MaxLeaves = 1 << 29 // of all products: bounds the record of an audit to 64 KiB
)

// Shape is the size of a product question: T products of an M×K matrix A and a K×N matrix B. Layout, little-endian:
//
//	offset  size  field
//	     0     4  rows M, a multiple of 64
//	     4     4  columns N, a multiple of 64
//	     8     4  depth K, a multiple of 64
//	    12     4  products T
type Shape struct {
	Rows     uint32 `json:"rows"`
	Columns  uint32 `json:"columns"`
	Depth    uint32 `json:"depth"`
	Products uint32 `json:"products"`
}

// Check returns ErrShape if the shape is out of bounds.
func (s Shape) Check() error {
	side := func(n uint32) bool { return n >= TileSide && n <= MaxSide && n%TileSide == 0 }
	if !side(s.Rows) || !side(s.Columns) || s.Depth < BlockSize || s.Depth > MaxDepth || s.Depth%BlockSize != 0 ||
		s.Products < 1 {
		return fmt.Errorf("%w: %s", ErrShape, s)
	}
	if per := uint64(s.Rows) * uint64(s.Columns) / LeafWords; uint64(s.Products) > MaxLeaves/per {
		return fmt.Errorf("%w: %s has more than %d leaves", ErrShape, s, MaxLeaves)
	}
	return nil
}

// String is "4 × 512×8192×512".
func (s Shape) String() string {
	return fmt.Sprintf("%d × %d×%d×%d", s.Products, s.Rows, s.Depth, s.Columns)
}

// Operations is the number of multiplications and additions of all products: 2·M·N·K·T.
func (s Shape) Operations() uint64 {
	return 2 * uint64(s.Rows) * uint64(s.Columns) * uint64(s.Depth) * uint64(s.Products)
}

// Tiles is the number of tiles of all products.
func (s Shape) Tiles() int { return int(s.Products) * s.tilesOfProduct() }

// Leaves is the number of leaves of all products.
func (s Shape) Leaves() int { return s.Tiles() * TileLeafs }

func (s Shape) tilesOfProduct() int { return int(s.Rows/TileSide) * int(s.Columns/TileSide) }

// Place is where a tile lies.
type Place struct {
	Product     uint32
	Row, Column uint32 // of the tile's first entry
}

// Place is where tile number i lies; i must be below Tiles.
func (s Shape) Place(i int) Place {
	product, at := i/s.tilesOfProduct(), i%s.tilesOfProduct()
	wide := int(s.Columns / TileSide)
	return Place{Product: uint32(product), Row: uint32(at/wide) * TileSide, Column: uint32(at%wide) * TileSide}
}

// entry is where the first value of a leaf lies.
func (s Shape) entry(leaf int) Place {
	p := s.Place(leaf / TileLeafs)
	p.Row += uint32(leaf % TileLeafs / (TileSide / LeafWords))
	p.Column += uint32(leaf%(TileSide/LeafWords)) * LeafWords
	return p
}

// Marshal returns the layout.
func (s Shape) Marshal() [ShapeSize]byte {
	var b [ShapeSize]byte
	for i, v := range []uint32{s.Rows, s.Columns, s.Depth, s.Products} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	return b
}

// UnmarshalShape reads the layout and checks it.
func UnmarshalShape(b []byte) (Shape, error) {
	if len(b) != ShapeSize {
		return Shape{}, fmt.Errorf("%w: shape of %d bytes", ErrMalformed, len(b))
	}
	u := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	s := Shape{Rows: u(0), Columns: u(4), Depth: u(8), Products: u(12)}
	return s, s.Check()
}
