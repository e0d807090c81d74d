package challenge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// CellSize is the size of a dataset cell, bytes: one sector of a GPU's memory.
const CellSize = 32

// WalkSize is the size of a walk's layout.
const WalkSize = 24

// Ends is how many walkers of a walk are shown and walked again.
const Ends = 4

// Bounds of a dataset and a walk.
const (
	MaxCells   = 1 << 36 // 2 TiB
	MaxWork    = 1 << 10
	MaxWalkers = 1 << 24
	MaxSteps   = 1 << 12
	// MaxRegeneration bounds work · steps: the verifier's cost of one walker in generator blocks, as it stores nothing.
	MaxRegeneration = 1 << 14
)

// Stretch is the most cells that one step of all walkers reads from: 64 GiB. Address translation of large GPUs covers
// 64 GiB at full speed (measured for an A100 of 80 GB: arXiv 2405.11425). Reads across a larger memory take several
// times as long.
const Stretch = 1 << 31

// Walk is the size of a memory question. Layout, little-endian:
//
//	offset  size  field
//	     0     8  cells of the dataset
//	     8     4  work w: generator blocks in a chain that make one cell
//	    12     4  walkers W
//	    16     4  steps L of each
//	    20     4  reserved: 0
type Walk struct {
	Cells   uint64 `json:"cells"`
	Work    uint32 `json:"work"`
	Walkers uint32 `json:"walkers"`
	Steps   uint32 `json:"steps"`
}

// Check returns ErrShape if the walk is out of bounds.
func (w Walk) Check() error {
	in := func(n, most uint32) bool { return n >= 1 && n <= most }
	if w.Cells < 1 || w.Cells > MaxCells || !in(w.Work, MaxWork) || !in(w.Walkers, MaxWalkers) ||
		!in(w.Steps, MaxSteps) || w.Work*w.Steps > MaxRegeneration {
		return fmt.Errorf("%w: walk %s", ErrShape, w)
	}
	return nil
}

// String is "65536 walkers of 64 steps over 1048576 cells of work 64".
func (w Walk) String() string {
	return fmt.Sprintf("%d walkers of %d steps over %d cells of work %d", w.Walkers, w.Steps, w.Cells, w.Work)
}

// Bytes is the size of the dataset.
func (w Walk) Bytes() uint64 { return w.Cells * CellSize }

// Stretches is how many parts of the dataset a walker goes through, one after the other: all walkers are in the same.
func (w Walk) Stretches() uint32 { return uint32((w.Cells + Stretch - 1) / Stretch) }

// Stretch is where a stretch begins and how many cells it has, and from which step to which, exclusive, it is walked.
func (w Walk) Stretch(j uint32) (first, cells uint64, from, to uint32) {
	n := uint64(w.Stretches())
	cell := func(j uint64) uint64 { return w.Cells/n*j + w.Cells%n*j/n }
	step := func(j uint64) uint32 { return uint32((uint64(w.Steps)*j + n - 1) / n) }
	first = cell(uint64(j))
	return first, cell(uint64(j)+1) - first, step(uint64(j)), step(uint64(j) + 1)
}

// Reads is the number of cells read by all walkers.
func (w Walk) Reads() uint64 { return uint64(w.Walkers) * uint64(w.Steps) }

// Marshal returns the layout.
func (w Walk) Marshal() [WalkSize]byte {
	var b [WalkSize]byte
	binary.LittleEndian.PutUint64(b[0:], w.Cells)
	binary.LittleEndian.PutUint32(b[8:], w.Work)
	binary.LittleEndian.PutUint32(b[12:], w.Walkers)
	binary.LittleEndian.PutUint32(b[16:], w.Steps)
	return b
}

// UnmarshalWalk reads the layout and checks it.
func UnmarshalWalk(b []byte) (Walk, error) {
	if len(b) != WalkSize || binary.LittleEndian.Uint32(b[20:]) != 0 {
		return Walk{}, fmt.Errorf("%w: walk of %d bytes", ErrMalformed, len(b))
	}
	w := Walk{
		Cells: binary.LittleEndian.Uint64(b), Work: binary.LittleEndian.Uint32(b[8:]),
		Walkers: binary.LittleEndian.Uint32(b[12:]), Steps: binary.LittleEndian.Uint32(b[16:]),
	}
	return w, w.Check()
}

// Cell is one dataset cell.
type Cell [4]uint64

// Dataset makes the cells of a seed.
type Dataset struct {
	g    Generator
	work uint32
}

// DatasetKey is the key of the first block of each cell of a seed.
func DatasetKey(seed sign.Hash) sign.Hash { return sign.Sum([]byte("starling/dataset/v1"), seed[:]) }

// NewDataset returns the dataset of a seed, with work blocks a cell.
func NewDataset(seed sign.Hash, work uint32) Dataset {
	return Dataset{g: NewGenerator(DatasetKey(seed)), work: work}
}

// Cell makes cell j.
func (d *Dataset) Cell(j uint64) Cell {
	g := d.g
	var x [16]uint32
	g.block(&x, j, 0, 0)
	for range d.work - 1 {
		copy(g.key[:], x[:8])
		g.block(&x, uint64(x[10])|uint64(x[11])<<32, x[8], x[9])
	}
	var c Cell
	for i := range c {
		c[i] = uint64(x[2*i]) | uint64(x[2*i+1])<<32
	}
	return c
}

// WalkKey is the start value of the walkers of a walk seed.
func WalkKey(seed sign.Hash) uint64 {
	h := sign.Sum([]byte("starling/walk/v1"), seed[:])
	return binary.LittleEndian.Uint64(h[:])
}

// Start is the state in which walker i of a walk key starts.
func Start(key uint64, i uint32) uint64 {
	return Mix(key^uint64(i)*0x9e3779b97f4a7c15, Cell{1, 2, 3, 4})
}

// Index is the cell of a stretch that a walker in state s reads.
func Index(s, cells uint64) uint64 {
	hi, _ := bits.Mul64(s, cells)
	return hi
}

// Mix is the state after reading a cell. Its constants are splitmix64's (Steele, Lea, Flood 2014).
func Mix(s uint64, c Cell) uint64 {
	s = (s ^ c[0]) * 0x9e3779b97f4a7c15
	s = (s ^ s>>29 ^ c[1]) * 0xbf58476d1ce4e5b9
	s = (s ^ s>>32 ^ c[2]) * 0x94d049bb133111eb
	return s ^ s>>31 ^ c[3]
}

// Go walks one walker with cells from read and returns its end.
func Go(w Walk, key uint64, i uint32, read func(j uint64) Cell) uint64 {
	s := Start(key, i)
	for j := range w.Stretches() {
		first, cells, from, to := w.Stretch(j)
		for range to - from {
			s = Mix(s, read(first+Index(s, cells)))
		}
	}
	return s
}

// Group is the number of walkers' ends in one leaf. A device hashes them and outputs only the hashes, since other timed
// work beside the walk could hide missing memory.
const Group = 64

// Groups is how many leaves the walkers' ends make.
func (w Walk) Groups() int { return (int(w.Walkers) + Group - 1) / Group }

// Members are the walkers of a group: the first, and how many.
func (w Walk) Members(group uint32) (first, n uint32) {
	first = group * Group
	return first, min(Group, w.Walkers-min(first, w.Walkers))
}

// GroupHash is the hash of a group's ends.
func GroupHash(ends []uint64) sign.Hash { return merkle.HashLeaf(endsLeaf(ends)) }

// GroupHashes are the hashes of all groups of a walk's ends.
func GroupHashes(ends []uint64) []sign.Hash {
	out := make([]sign.Hash, 0, (len(ends)+Group-1)/Group)
	for group := range slices.Chunk(ends, Group) {
		out = append(out, GroupHash(group))
	}
	return out
}

// Arrivals is the commitment to where all walkers of a walk ended.
type Arrivals struct {
	walk Walk
	tree *merkle.Tree
}

// NewArrivals commits to the ends of all walkers by the hashes of their groups, in order. It returns ErrWalk if their
// number is wrong. split is as for [merkle.NewBuilder].
func NewArrivals(w Walk, groups []sign.Hash, split func(n int, do func(from, to int))) (*Arrivals, error) {
	if len(groups) != w.Groups() {
		return nil, fmt.Errorf("%w: %d groups of %d", ErrWalk, len(groups), w.Groups())
	}
	b := merkle.NewBuilder(len(groups), split)
	b.Add(groups)
	return &Arrivals{walk: w, tree: b.Tree()}, nil
}

func endsLeaf(group []uint64) []byte {
	b := make([]byte, 0, Group*8)
	for _, s := range group {
		b = binary.LittleEndian.AppendUint64(b, s)
	}
	return b
}

// Root commits to every end.
func (a *Arrivals) Root() sign.Hash { return a.tree.RootOf(a.walk.Groups()) }

// End is the final state of one walker, and its Group of walkers.
type End struct {
	Walker uint32   `json:"walker"`
	Group  []uint64 `json:"group"` // from walker ⌊Walker/64⌋·64 on, 64 of them, or as many as there are
}

// State is where the walker arrived; 0 of a group that it is not in.
func (e End) State() uint64 {
	if at := int(e.Walker % Group); at < len(e.Group) {
		return e.Group[at]
	}
	return 0
}

// Walked is a prover's opened ends of a walk. Layout:
//
//	offset  size  field
//	     0     2  n, ends
//	     2        n × ( walker u32 ‖ g u8, 1 to 64 ‖ g × state u64 ),
//	              walkers strictly ascending, each within its group
//	           2  m, nodes
//	      32 · m  m × node[32]
type Walked struct {
	Ends  []End       `json:"ends"`
	Nodes merkle.Many `json:"nodes"`
}

// maxEndNodes bounds the proof of Ends groups of MaxWalkers.
const maxEndNodes = Ends * 18

// Open returns the drawn walkers, which must be strictly ascending and exist. ends recomputes a group's final states.
// Open returns ErrFault if they differ from the committed ones.
func (a *Arrivals) Open(walkers []uint32, ends func(group uint32) ([]uint64, error)) (Walked, error) {
	var w Walked
	var indices []int
	var last []uint64
	for _, k := range walkers {
		if k >= a.walk.Walkers {
			return Walked{}, fmt.Errorf("%w: walker %d of %d", ErrOpenings, k, a.walk.Walkers)
		}
		at := int(k) / Group
		if len(indices) == 0 || indices[len(indices)-1] != at {
			indices = append(indices, at)
			var err error
			if last, err = ends(uint32(at)); err != nil {
				return Walked{}, err
			}
			if want, err := a.tree.Node(0, at); err != nil || GroupHash(last) != want {
				return Walked{}, errors.Join(fmt.Errorf("%w: walkers from %d on", ErrFault, at*Group), err)
			}
		}
		w.Ends = append(w.Ends, End{Walker: k, Group: last})
	}
	var err error
	w.Nodes, err = merkle.ProveMany(a.tree.Len(), indices, a.tree.Node)
	return w, err
}

// Check verifies that exactly the drawn walkers are shown, under root, and where they arrived: it walks them again and
// makes each cell that they read. ErrOpenings, ErrCommitment or ErrWalk.
func (o Walked) Check(dataset, seed sign.Hash, w Walk, root sign.Hash, drawn []uint32) error {
	if err := w.Check(); err != nil {
		return err
	}
	if len(o.Ends) != len(drawn) {
		return fmt.Errorf("%w: %d walkers instead of %d", ErrOpenings, len(o.Ends), len(drawn))
	}
	var leaves []merkle.Indexed
	for i, e := range o.Ends {
		if e.Walker != drawn[i] {
			return fmt.Errorf("%w: walker %d instead of %d", ErrOpenings, e.Walker, drawn[i])
		}
		at := int(e.Walker) / Group
		if want := min(Group, int(w.Walkers)-at*Group); len(e.Group) != want {
			return fmt.Errorf("%w: a group of %d walkers instead of %d", ErrOpenings, len(e.Group), want)
		}
		leaf := merkle.Indexed{Index: at, Data: endsLeaf(e.Group)}
		switch n := len(leaves); {
		case n == 0 || leaves[n-1].Index != at:
			leaves = append(leaves, leaf)
		case !bytes.Equal(leaves[n-1].Data, leaf.Data):
			return fmt.Errorf("%w: two forms of group %d", ErrOpenings, at)
		}
	}
	if err := o.Nodes.Verify(root, int(w.Walkers+Group-1)/Group, leaves); err != nil {
		return fmt.Errorf("%w: %w", ErrCommitment, err)
	}
	for _, e := range o.Ends {
		if err := CheckEnd(dataset, seed, w, e); err != nil {
			return err
		}
	}
	return nil
}

// CheckEnd walks one walker again. It returns ErrWalk if the final state differs.
func CheckEnd(dataset, seed sign.Hash, w Walk, e End) error {
	d := NewDataset(dataset, w.Work)
	if got := Go(w, WalkKey(seed), e.Walker, d.Cell); got != e.State() {
		return fmt.Errorf("%w: walker %d arrives at %016x, not %016x", ErrWalk, e.Walker, got, e.State())
	}
	return nil
}

// Marshal returns the layout.
func (o Walked) Marshal() []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(o.Ends)))
	for _, e := range o.Ends {
		b = binary.LittleEndian.AppendUint32(b, e.Walker)
		b = append(b, byte(len(e.Group)))
		b = append(b, endsLeaf(e.Group)...)
	}
	return appendNodes(b, o.Nodes)
}

// UnmarshalWalked parses the layout and returns the bytes after it.
func UnmarshalWalked(b []byte) (Walked, []byte, error) {
	const head = 5
	if len(b) < 2 {
		return Walked{}, nil, fmt.Errorf("%w: walk of %d bytes", ErrMalformed, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n < 1 || n > Ends {
		return Walked{}, nil, fmt.Errorf("%w: %d walkers", ErrMalformed, n)
	}
	w := Walked{Ends: make([]End, n)}
	for i := range w.Ends {
		if len(b) < head {
			return Walked{}, nil, fmt.Errorf("%w: walkers cut off", ErrMalformed)
		}
		k, g := binary.LittleEndian.Uint32(b), int(b[4])
		if b = b[head:]; g > Group || int(k%Group) >= g || len(b) < 8*g {
			return Walked{}, nil, fmt.Errorf("%w: walker %d in a group of %d", ErrMalformed, k, g)
		}
		if i > 0 && k <= w.Ends[i-1].Walker {
			return Walked{}, nil, fmt.Errorf("%w: walkers are not in order", ErrMalformed)
		}
		e := End{Walker: k, Group: make([]uint64, g)}
		for j := range e.Group {
			e.Group[j] = binary.LittleEndian.Uint64(b[8*j:])
		}
		w.Ends[i], b = e, b[8*g:]
	}
	var err error
	w.Nodes, b, err = readNodes(b, maxEndNodes)
	return w, b, err
}
