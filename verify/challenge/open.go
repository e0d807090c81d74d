package challenge

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Openings is how many leaves of a product are opened. A share f of the work passes with probability f⁵⁶.
const Openings = 56

// maxNodes bounds the proof of Openings leaves: none of the nodes of the top six levels is shared by all.
const maxNodes = Openings * 29

// Opening is one leaf of a commitment.
type Opening struct {
	Leaf   uint32           `json:"leaf"`
	Values [LeafWords]int32 `json:"values"`
}

// Data is the leaf's 128 bytes.
func (o Opening) Data() []byte {
	b := make([]byte, 0, LeafSize)
	for _, v := range o.Values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// Opened is a prover's opened product entries, with the proof that it had committed to them. Layout:
//
//	offset     size  field
//	     0        2  n, openings
//	     2  132 · n  n × ( leaf u32 ‖ 32 values int32 ), leaves strictly ascending
//	               2  m, nodes
//	          32 · m  m × node[32], as market/merkle.Many orders them
type Opened struct {
	Openings []Opening   `json:"openings"`
	Nodes    merkle.Many `json:"nodes"`
}

// Draw draws k distinct leaves to open, or all if there are fewer, ascending. The randomness must not exist before the
// commitment.
func Draw(randomness sign.Hash, leaves, k int) []uint32 {
	key := sign.Sum([]byte("starling/draw/v1"), randomness[:])
	g := NewGenerator(key)
	out := make([]uint32, 0, k)
	seen := map[uint32]bool{}
	var words [16]uint32
	for counter := uint64(0); len(out) < min(k, leaves); counter++ {
		g.block(&words, counter, 0, 0)
		for i := 0; i < len(words) && len(out) < min(k, leaves); i += 2 {
			wide := uint64(words[i]) | uint64(words[i+1])<<32
			hi, _ := bits.Mul64(wide, uint64(leaves))
			if leaf := uint32(hi); !seen[leaf] {
				seen[leaf] = true
				out = append(out, leaf)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Open computes the tiles of the drawn leaves again and returns their values with the proof. It returns ErrFault if a
// tile differs from the committed one. leaves must be strictly ascending and below the number of leaves, as Draw
// returns them.
func (c *Commitment) Open(seed sign.Hash, leaves []uint32) (Opened, error) {
	g := ProductGenerator(seed)
	return c.OpenTiles(leaves, func(i int) *Tile { return NewTile(&g, c.shape, c.shape.Place(i)) })
}

// OpenTiles is Open with supplied tiles: a prover with several processors computes them in parallel beforehand. Each
// tile is requested once. A bit flip after the comparison makes it differ from the leaf under the root.
func (c *Commitment) OpenTiles(leaves []uint32, tile func(i int) *Tile) (Opened, error) {
	trees := map[int]*merkle.Tree{}
	var o Opened
	indices := make([]int, 0, len(leaves))
	var t *Tile
	for _, leaf := range leaves {
		at := int(leaf) / TileLeafs
		if int(leaf) >= c.shape.Leaves() {
			return Opened{}, fmt.Errorf("%w: leaf %d of %d", ErrOpenings, leaf, c.shape.Leaves())
		}
		if trees[at] == nil { // leaves ascend, so t is the last one's until then
			t = tile(at)
			trees[at] = t.tree()
			want, err := c.tree.Node(0, at)
			if err != nil {
				return Opened{}, err
			}
			if got, _ := trees[at].Node(tileLevel, 0); got != want {
				return Opened{}, fmt.Errorf("%w: tile %d", ErrFault, at)
			}
		}
		in := int(leaf) % TileLeafs
		o.Openings = append(o.Openings, Opening{Leaf: leaf, Values: [LeafWords]int32(t[in*LeafWords:])})
		indices = append(indices, int(leaf))
	}
	var err error
	o.Nodes, err = merkle.ProveMany(c.shape.Leaves(), indices, func(level, i int) (sign.Hash, error) {
		if level >= tileLevel {
			return c.tree.Node(level-tileLevel, i)
		}
		per := TileLeafs >> level
		return trees[i/per].Node(level, i%per)
	})
	return o, err
}

// Check verifies that exactly the drawn leaves are opened and are under root, and that in each the value at index pick
// is the product's. pick must come from the verifier's own randomness or from the draw, so that the prover cannot
// predict it. It returns ErrOpenings, ErrCommitment or ErrEntry.
func (o Opened) Check(seed sign.Hash, s Shape, root sign.Hash, drawn []uint32, pick func(i int) int) error {
	if err := s.Check(); err != nil {
		return err
	}
	if len(o.Openings) != len(drawn) {
		return fmt.Errorf("%w: %d instead of %d", ErrOpenings, len(o.Openings), len(drawn))
	}
	leaves := make([]merkle.Indexed, len(drawn))
	for i, x := range o.Openings {
		if x.Leaf != drawn[i] {
			return fmt.Errorf("%w: leaf %d instead of %d", ErrOpenings, x.Leaf, drawn[i])
		}
		leaves[i] = merkle.Indexed{Index: int(x.Leaf), Data: x.Data()}
	}
	if err := o.Nodes.Verify(root, s.Leaves(), leaves); err != nil {
		return fmt.Errorf("%w: %w", ErrCommitment, err)
	}
	g := ProductGenerator(seed)
	c := checker{g: &g, row: make([]byte, s.Depth), column: make([]byte, s.Depth)}
	for i, x := range o.Openings {
		if err := c.entry(s, x, pick(i)); err != nil {
			return err
		}
	}
	return nil
}

// CheckEntry verifies value number i, below LeafWords, of one opening, which is the core of a proof of a lie. It
// returns ErrEntry if the value is wrong.
func CheckEntry(seed sign.Hash, s Shape, x Opening, i int) error {
	if err := s.Check(); err != nil {
		return err
	}
	if int(x.Leaf) >= s.Leaves() || i < 0 || i >= LeafWords {
		return fmt.Errorf("%w: value %d of leaf %d", ErrOpenings, i, x.Leaf)
	}
	g := ProductGenerator(seed)
	c := checker{g: &g, row: make([]byte, s.Depth), column: make([]byte, s.Depth)}
	return c.entry(s, x, i)
}

type checker struct {
	g           *Generator
	row, column []byte
}

func (c *checker) entry(s Shape, x Opening, i int) error {
	p := s.entry(int(x.Leaf))
	p.Column += uint32(i)
	c.g.Line(c.row, A, p.Product, p.Row)
	c.g.Line(c.column, B, p.Product, p.Column)
	if want := Dot(c.row, c.column); x.Values[i] != want {
		return fmt.Errorf("%w: product %d row %d column %d is %d, not %d",
			ErrEntry, p.Product, p.Row, p.Column, want, x.Values[i])
	}
	return nil
}

// Dot is the exact product of two lines of int8: the definition of an entry.
func Dot(a, b []byte) int32 {
	var s0, s1, s2, s3 int32
	b = b[:len(a)]
	for k := 0; k+4 <= len(a); k += 4 {
		s0 += int32(int8(a[k])) * int32(int8(b[k]))
		s1 += int32(int8(a[k+1])) * int32(int8(b[k+1]))
		s2 += int32(int8(a[k+2])) * int32(int8(b[k+2]))
		s3 += int32(int8(a[k+3])) * int32(int8(b[k+3]))
	}
	return s0 + s1 + s2 + s3
}

// Marshal returns the layout.
func (o Opened) Marshal() []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(o.Openings)))
	for _, x := range o.Openings {
		b = binary.LittleEndian.AppendUint32(b, x.Leaf)
		b = append(b, x.Data()...)
	}
	return appendNodes(b, o.Nodes)
}

// UnmarshalOpened parses the layout and returns the bytes after it.
func UnmarshalOpened(b []byte) (Opened, []byte, error) {
	const each = 4 + LeafSize
	if len(b) < 2 {
		return Opened{}, nil, fmt.Errorf("%w: openings of %d bytes", ErrMalformed, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n < 1 || n > Openings || len(b) < n*each {
		return Opened{}, nil, fmt.Errorf("%w: %d openings in %d bytes", ErrMalformed, n, len(b))
	}
	o := Opened{Openings: make([]Opening, n)}
	for i := range o.Openings {
		x := &o.Openings[i]
		x.Leaf = binary.LittleEndian.Uint32(b)
		for k := range x.Values {
			x.Values[k] = int32(binary.LittleEndian.Uint32(b[4+4*k:]))
		}
		if i > 0 && x.Leaf <= o.Openings[i-1].Leaf {
			return Opened{}, nil, fmt.Errorf("%w: openings are not in order", ErrMalformed)
		}
		b = b[each:]
	}
	var err error
	o.Nodes, b, err = readNodes(b, maxNodes)
	return o, b, err
}

func appendNodes(b []byte, nodes merkle.Many) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(nodes)))
	for _, h := range nodes {
		b = append(b, h[:]...)
	}
	return b
}

func readNodes(b []byte, most int) (merkle.Many, []byte, error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: nodes cut off", ErrMalformed)
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n > most || len(b) < n*sign.HashSize {
		return nil, nil, fmt.Errorf("%w: %d nodes in %d bytes", ErrMalformed, n, len(b))
	}
	nodes := make(merkle.Many, n)
	for i := range nodes {
		nodes[i] = sign.Hash(b[i*sign.HashSize:])
	}
	return nodes, b[n*sign.HashSize:], nil
}
