package challenge

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Tile is a 64×64 piece of a product, row by row.
type Tile [TileSide * TileSide]int32

// Lines is generated input: rows of A or columns of B, one after the other, depth bytes each.
type Lines struct {
	Depth int
	Bytes []byte
}

// NewLines generates lines from first up to first + n.
func NewLines(g *Generator, s Shape, m Matrix, product, first uint32, n int) Lines {
	l := Lines{Depth: int(s.Depth), Bytes: make([]byte, n*int(s.Depth))}
	for i := range n {
		g.Line(l.Line(i), m, product, first+uint32(i))
	}
	return l
}

// Line is one of them.
func (l Lines) Line(i int) []byte { return l.Bytes[i*l.Depth : (i+1)*l.Depth] }

// wide is how many columns are multiplied at a time.
const wide = 8

// Packed is 64 columns of B made ready for Compute, eight at a time: pairs of them share words.
type Packed struct {
	depth int
	words []uint64
}

// Pack makes 64 columns ready.
func Pack(columns Lines) Packed {
	p := Packed{depth: columns.Depth, words: make([]uint64, columns.Depth*TileSide/2)}
	for j := 0; j < TileSide; j += 2 {
		lo, hi := columns.Line(j)[:p.depth], columns.Line(j + 1)[:p.depth]
		part := p.group(j / wide)
		for k := range p.depth {
			part[k*(wide/2)+j%wide/2] = uint64(int64(int8(lo[k]))) + uint64(int64(int8(hi[k])))<<32
		}
	}
	return p
}

// group is eight of the columns.
func (p Packed) group(i int) []uint64 {
	size := p.depth * wide / 2
	return p.words[i*size : (i+1)*size]
}

// Compute multiplies 64 rows of A by 64 columns of B.
//
// Two signed products share one 64-bit multiplication, a·(b₀ + b₁·2³²); the lanes are separated afterwards, which is
// exact while sums stay below 2³¹.
func (t *Tile) Compute(rows Lines, columns Packed) {
	for j := 0; j < TileSide; j += wide {
		packed := columns.group(j / wide)
		for i := 0; i < TileSide; i += 2 {
			multiply((*[2 * TileSide]int32)(t[i*TileSide:]), j, rows.Line(i), rows.Line(i+1), packed)
		}
	}
}

// multiply sets eight columns from j on of two rows of a tile.
func multiply(out *[2 * TileSide]int32, j int, a, b []byte, packed []uint64) {
	var s0, s1, s2, s3, t0, t1, t2, t3 uint64
	b = b[:len(a)]
	for k := range a {
		x, y := uint64(int64(int8(a[k]))), uint64(int64(int8(b[k])))
		w := (*[4]uint64)(packed[4*k:])
		s0 += x * w[0]
		t0 += y * w[0]
		s1 += x * w[1]
		t1 += y * w[1]
		s2 += x * w[2]
		t2 += y * w[2]
		s3 += x * w[3]
		t3 += y * w[3]
	}
	for q, v := range [4]uint64{s0, s1, s2, s3} {
		out[j+2*q], out[j+2*q+1] = lanes(v)
	}
	for q, v := range [4]uint64{t0, t1, t2, t3} {
		out[TileSide+j+2*q], out[TileSide+j+2*q+1] = lanes(v)
	}
}

// lanes separates the two sums of one word.
func lanes(v uint64) (lo, hi int32) {
	lo = int32(uint32(v))
	return lo, int32(uint32((v - uint64(int64(lo))) >> 32))
}

// leaf is the data of one of a tile's leaves.
func (t *Tile) leaf(i int) []byte {
	b := make([]byte, 0, LeafSize)
	for _, v := range t[i*LeafWords : (i+1)*LeafWords] {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// tree is the part of the commitment that lies in the tile.
func (t *Tile) tree() *merkle.Tree {
	leaves := make([][]byte, TileLeafs)
	for i := range leaves {
		leaves[i] = t.leaf(i)
	}
	return merkle.New(leaves)
}

// Hash is the tile's node in the commitment.
func (t *Tile) Hash() sign.Hash {
	top, err := t.tree().Node(tileLevel, 0)
	if err != nil {
		panic(err) // 128 leaves always have a level 7
	}
	return top
}

// NewTile computes a tile from its seed: 2·64·K bytes of generator.
func NewTile(g *Generator, s Shape, p Place) *Tile {
	t := &Tile{}
	t.Compute(NewLines(g, s, A, p.Product, p.Row, TileSide), Pack(NewLines(g, s, B, p.Product, p.Column, TileSide)))
	return t
}

// Commitment is the state that a prover keeps of its products: the hash of each tile, and the tree above.
type Commitment struct {
	shape Shape
	tree  *merkle.Tree
	root  sign.Hash
}

// Commit builds the commitment over the hashes of all tiles, in order. It returns ErrTiles if their number is wrong.
func Commit(s Shape, tiles []sign.Hash) (*Commitment, error) {
	c, err := NewCommitter(s, nil)
	if err == nil {
		err = c.Add(tiles)
	}
	if err != nil {
		return nil, err
	}
	return c.Commit()
}

// Committer builds a commitment while products are computed. Hashing the tree over the tiles of a large challenge takes
// a processor nearly half a second; it is done by the time of the last product.
type Committer struct {
	shape Shape
	tree  *merkle.Builder
}

// NewCommitter is a committer to the products of a shape. split is as for [merkle.NewBuilder].
func NewCommitter(s Shape, split func(n int, do func(from, to int))) (*Committer, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Committer{shape: s, tree: merkle.NewBuilder(s.Tiles(), split)}, nil
}

// Add adds the hashes of the next tiles, in order. It returns ErrTiles if there are more than the products have.
func (c *Committer) Add(tiles []sign.Hash) error {
	if len(tiles) > c.shape.Tiles()-c.tree.Len() {
		return fmt.Errorf("%w: more than %d", ErrTiles, c.shape.Tiles())
	}
	c.tree.Add(tiles)
	return nil
}

// Commit is the commitment, when all tiles were added. ErrTiles if some were not.
func (c *Committer) Commit() (*Commitment, error) {
	if n := c.tree.Len(); n != c.shape.Tiles() {
		return nil, fmt.Errorf("%w: %d of %d", ErrTiles, n, c.shape.Tiles())
	}
	out := &Commitment{shape: c.shape, tree: c.tree.Tree()}
	out.root = out.tree.RootOf(c.shape.Leaves())
	return out, nil
}

// Root commits to every value of every product.
func (c *Commitment) Root() sign.Hash { return c.root }

// Shape is the shape of the products.
func (c *Commitment) Shape() Shape { return c.shape }
