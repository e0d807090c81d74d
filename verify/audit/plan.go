package audit

import (
	"fmt"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/challenge"
)

// The sizes of a challenge, in microseconds.
const (
	// ProductTime is the time of the products at the class's floor; less where challenge.MaxLeaves bounds them
	// (1.126·10¹⁵ operations).
	ProductTime = 1_000_000
	// WalkTime is the longest time of the walk at the floor.
	WalkTime = 500_000
	// Allowance is added to each for other work than arithmetic and memory: starting kernels, hashing, a late packet.
	Allowance = 100_000
)

// Sizes of memory challenges.
const (
	gpuWork  = 64      // blocks in a cell: making one again takes 45 to 115 times as long as reading it
	slowWork = 128     // for cards that fill their memory so fast that two identities could share one (Instants)
	cpuWork  = 32      // a processor makes such a cell in less than a microsecond
	walkWork = 1 << 14 // work · steps: all that challenge.MaxRegeneration allows
	cpuShare = 16      // MiB for each core, at most: it fills in a second, so that an idle peer need not keep it
	maxSide  = 8192    // rows and columns of a product: wider ones save no generator worth it
	// bytes of a GPU that a dataset leaves to driver, context and products; and a sixteenth to other programs
	reserve = 1 << 30
)

// DatasetBytes is the size of a unit's dataset, and so of its proven memory: of a GPU fifteen sixteenths of its claim,
// less 1 GiB. The gibibyte holds the driver's context and the products; the sixteenth is for a desktop or another
// program. A unit with less free memory cannot fill its dataset, and is not proven in that window.
func DatasetBytes(class market.Class, r market.Resources) uint64 {
	if class.Family() == "cpu" {
		return min(uint64(r.MemoryMiB)/2, uint64(r.MilliCPU)*cpuShare/1000) << 20
	}
	claimed := uint64(r.VRAMMiB) << 20
	return (claimed - min(claimed, reserve+claimed/16)) / part(memoryPart)
}

// Plan is the question for a unit. It is a function of class and resources, so that a record can be checked against it.
// The products take ProductTime at the class's floor, or the nearest time within the bounds of a challenge. It returns
// ErrShape for a unit without a question: its class has no floor, or it has no memory.
func Plan(class market.Class, r market.Resources) (challenge.Shape, challenge.Walk, error) {
	if k, ok := KnownAs(class); ok && class.Family() != "cpu" && r.VRAMMiB < k.VRAMMiB {
		return challenge.Shape{}, challenge.Walk{},
			fmt.Errorf("%w: memory of %d MiB: class %s has at least %d",
				challenge.ErrShape, r.VRAMMiB, class, k.VRAMMiB)
	}
	floor, ok := FloorOf(class, r)
	memory := DatasetBytes(class, r)
	if !ok || memory < challenge.CellSize {
		return challenge.Shape{}, challenge.Walk{},
			fmt.Errorf("%w: no challenge for class %s with %d bytes of memory",
				challenge.ErrShape, class, memory)
	}
	w := challenge.Walk{Cells: min(memory/challenge.CellSize, challenge.MaxCells), Work: gpuWork}
	switch {
	case class == "gpu/rtx-3090" || class == "gpu/rtx-4090":
		w.Work = slowWork
	case class.Family() == "cpu":
		w.Work = cpuWork
	}
	w.Steps = walkWork / w.Work
	reads := floor.Reads / 1_000_000 * WalkTime
	w.Walkers = uint32(min(max(reads/uint64(w.Steps)/challenge.Group, 1)*challenge.Group, challenge.MaxWalkers))
	depth := uint32(challenge.MaxDepth)
	if class.Family() != "cpu" {
		depth /= uint32(part(depthPart))
	}
	return planProducts(floor.Operations/1_000_000*ProductTime, depth), w, nil
}

// planProducts is the shape nearest above the number of operations. It has the greatest depth, to keep the hashed data
// small, and at least 8 products of the greatest side.
func planProducts(operations uint64, depth uint32) challenge.Shape {
	s := challenge.Shape{Rows: maxSide, Columns: maxSide, Depth: depth, Products: 1}
	for s.Rows > challenge.TileSide && s.Operations()*8 > operations {
		s.Rows, s.Columns = s.Rows/2, s.Columns/2
	}
	most := uint64(challenge.MaxLeaves) / (uint64(s.Rows) * uint64(s.Columns) / challenge.LeafWords)
	s.Products = uint32(min((operations+s.Operations()-1)/s.Operations(), most))
	s.Products = max(s.Products, 1)
	return s
}

// Deadlines returns the maximum times of a unit for a shape and a walk, in microseconds, at its class's floor.
func (f Floor) Deadlines(s challenge.Shape, w challenge.Walk) (product, walk uint64) {
	return takes(s.Operations(), f.Operations), takes(w.Reads(), f.Reads)
}

// takes is count · 10⁶ / rate microseconds, rounded up; the rate must not be 0.
func takes(count, rate uint64) uint64 {
	hi, lo := bits.Mul64(count, 1_000_000)
	lo, carry := bits.Add64(lo, rate-1, 0)
	if hi += carry; hi >= rate {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, rate)
	return q
}

// interpreted is set by the linker alone (-ldflags "-X
// github.com/starling-network/starling/verify/audit.interpreted=yes"), in programs that tests build: in them every GPU
// is the PTX interpreter, which computes the same and is tens of millions of times as slow. All peers of a network must
// be such programs, and a network that is not a simulated one is refused (node.New).
var interpreted string

// Divisors of a GPU's question in such a program.
const (
	slowDown   = 1 << 27 // of the floors
	memoryPart = 1 << 22 // of the dataset
	depthPart  = 16      // of a product's depth
)

// Interpreted reports whether this program takes the PTX interpreter for a GPU.
func Interpreted() bool { return interpreted != "" }

// part reduces the challenge in a program with the PTX interpreter as its GPU; it is 1 in all other programs.
func part(factor uint64) uint64 {
	if Interpreted() {
		return factor
	}
	return 1
}
