package challenge

import (
	"encoding/binary"
	"fmt"
	"math/bits"

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
	MaxWalkers = 1 << 20
	MaxSteps   = 1 << 12
	// MaxRegeneration bounds work · steps: what one walker costs a verifier, which stores nothing, in generator blocks.
	MaxRegeneration = 1 << 14
)

// Walk is what is to be read. Layout, little-endian:
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

// Check refuses, with ErrShape, what is out of bounds.
func (w Walk) Check() error {
	in := func(n, most uint32) bool { return n >= 1 && n <= most }
	if w.Cells < 1 || w.Cells > MaxCells || !in(w.Work, MaxWork) || !in(w.Walkers, MaxWalkers) || !in(w.Steps, MaxSteps) ||
		w.Work*w.Steps > MaxRegeneration {
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

// NewDataset is the dataset of a seed whose cells take work blocks each.
func NewDataset(seed sign.Hash, work uint32) Dataset {
	return Dataset{g: NewGenerator(sign.Sum([]byte("starling/dataset/v1"), seed[:])), work: work}
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

// WalkKey is what the walkers of a walk seed start from.
func WalkKey(seed sign.Hash) uint64 {
	h := sign.Sum([]byte("starling/walk/v1"), seed[:])
	return binary.LittleEndian.Uint64(h[:])
}

// Start is the state in which walker i of a walk key starts.
func Start(key uint64, i uint32) uint64 {
	return Mix(key^uint64(i)*0x9e3779b97f4a7c15, Cell{1, 2, 3, 4})
}

// Index is the cell that a walker in state s reads.
func Index(s, cells uint64) uint64 {
	hi, _ := bits.Mul64(s, cells)
	return hi
}

// Mix is the state after reading a cell. Its constants are those of splitmix64 (Steele, Lea, Flood 2014).
func Mix(s uint64, c Cell) uint64 {
	s = (s ^ c[0]) * 0x9e3779b97f4a7c15
	s = (s ^ s>>29 ^ c[1]) * 0xbf58476d1ce4e5b9
	s = (s ^ s>>32 ^ c[2]) * 0x94d049bb133111eb
	return s ^ s>>31 ^ c[3]
}

// Go walks one walker with cells from read and returns its end.
func Go(w Walk, key uint64, i uint32, read func(j uint64) Cell) uint64 {
	s := Start(key, i)
	for range w.Steps {
		s = Mix(s, read(Index(s, w.Cells)))
	}
	return s
}

// Arrivals is the commitment to where all walkers of a walk ended.
type Arrivals struct {
	ends []uint64
	tree *merkle.Tree
}

// NewArrivals commits to the ends, in order.
func NewArrivals(ends []uint64) *Arrivals {
	leaves := make([][]byte, len(ends))
	for i, s := range ends {
		leaves[i] = binary.LittleEndian.AppendUint64(nil, s)
	}
	return &Arrivals{ends: ends, tree: merkle.New(leaves)}
}

// Root commits to every end.
func (a *Arrivals) Root() sign.Hash { return a.tree.Root() }

// End is where one walker arrived.
type End struct {
	Walker uint32 `json:"walker"`
	State  uint64 `json:"state"`
}

// Walked is what a prover shows of a walk. Layout:
//
//	offset    size  field
//	     0       2  n, ends
//	     2  12 · n  n × ( walker u32 ‖ state u64 ), walkers strictly ascending
//	             2  m, nodes
//	        32 · m  m × node[32]
type Walked struct {
	Ends  []End       `json:"ends"`
	Nodes merkle.Many `json:"nodes"`
}

// maxEndNodes bounds the proof of Ends leaves of MaxWalkers.
const maxEndNodes = Ends * 20

// Open shows the drawn walkers; they must be strictly ascending and exist.
func (a *Arrivals) Open(walkers []uint32) (Walked, error) {
	var w Walked
	indices := make([]int, len(walkers))
	for i, k := range walkers {
		if int(k) >= len(a.ends) {
			return Walked{}, fmt.Errorf("%w: walker %d of %d", ErrOpenings, k, len(a.ends))
		}
		w.Ends = append(w.Ends, End{Walker: k, State: a.ends[k]})
		indices[i] = int(k)
	}
	var err error
	w.Nodes, err = merkle.ProveMany(len(a.ends), indices, a.tree.Node)
	return w, err
}

// Check verifies that exactly the drawn walkers are shown, under root, and where they arrived: it walks them again and makes
// each cell that they read. ErrOpenings, ErrCommitment or ErrWalk.
func (o Walked) Check(dataset, seed sign.Hash, w Walk, root sign.Hash, drawn []uint32) error {
	if err := w.Check(); err != nil {
		return err
	}
	if len(o.Ends) != len(drawn) {
		return fmt.Errorf("%w: %d walkers instead of %d", ErrOpenings, len(o.Ends), len(drawn))
	}
	leaves := make([]merkle.Indexed, len(drawn))
	for i, e := range o.Ends {
		if e.Walker != drawn[i] {
			return fmt.Errorf("%w: walker %d instead of %d", ErrOpenings, e.Walker, drawn[i])
		}
		leaves[i] = merkle.Indexed{Index: int(e.Walker), Data: binary.LittleEndian.AppendUint64(nil, e.State)}
	}
	if err := o.Nodes.Verify(root, int(w.Walkers), leaves); err != nil {
		return fmt.Errorf("%w: %w", ErrCommitment, err)
	}
	for _, e := range o.Ends {
		if err := CheckEnd(dataset, seed, w, e); err != nil {
			return err
		}
	}
	return nil
}

// CheckEnd walks one walker again. ErrWalk when it arrives elsewhere.
func CheckEnd(dataset, seed sign.Hash, w Walk, e End) error {
	d := NewDataset(dataset, w.Work)
	if got := Go(w, WalkKey(seed), e.Walker, d.Cell); got != e.State {
		return fmt.Errorf("%w: walker %d arrives at %016x, not %016x", ErrWalk, e.Walker, got, e.State)
	}
	return nil
}

// Marshal returns the layout.
func (o Walked) Marshal() []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(o.Ends)))
	for _, e := range o.Ends {
		b = binary.LittleEndian.AppendUint32(b, e.Walker)
		b = binary.LittleEndian.AppendUint64(b, e.State)
	}
	return appendNodes(b, o.Nodes)
}

// UnmarshalWalked reads the layout and returns what follows it.
func UnmarshalWalked(b []byte) (Walked, []byte, error) {
	const each = 12
	if len(b) < 2 {
		return Walked{}, nil, fmt.Errorf("%w: walk of %d bytes", ErrMalformed, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n < 1 || n > Ends || len(b) < n*each {
		return Walked{}, nil, fmt.Errorf("%w: %d walkers in %d bytes", ErrMalformed, n, len(b))
	}
	w := Walked{Ends: make([]End, n)}
	for i := range w.Ends {
		w.Ends[i] = End{Walker: binary.LittleEndian.Uint32(b), State: binary.LittleEndian.Uint64(b[4:])}
		if i > 0 && w.Ends[i].Walker <= w.Ends[i-1].Walker {
			return Walked{}, nil, fmt.Errorf("%w: walkers are not in order", ErrMalformed)
		}
		b = b[each:]
	}
	var err error
	w.Nodes, b, err = readNodes(b, maxEndNodes)
	return w, b, err
}
