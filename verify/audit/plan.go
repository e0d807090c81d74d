package audit

import (
	"fmt"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/challenge"
)

// Floor is what a class must show: two thirds of the arithmetic and four fifths of the memory rate that its hardware reaches
// with this network's kernels. One card behind two identities reaches half. A throttled card stays above it and only sells
// less, for what is sold is what was proven.
type Floor struct {
	Operations uint64 // int8 multiplications and additions a second
	Reads      uint64 // of 32 bytes each at a random place, a second
}

// floors of the classes that are told apart; hardware of other classes must show what its family shows. None is measured with this
// network's kernels on a GPU. Arithmetic is assumed: half to three quarters of a data sheet's peak where mma.sync reaches it, and on
// Hopper and Blackwell two thirds of what the kernel's traffic through shared memory lets it reach (530 and 570 TOPS, estimated).
// Reads of an H100 and an H200 are published: 31.8 and 36 to 39 G/s of 8 bytes over tables of 4 to 16 GiB
// (github.com/NVIDIA-developer-blog/code-samples, issue 56); those of the others are assumed, as an H200's are half of one read for
// each 64 bytes that the memory could move. A walk stays within challenge.Stretch at a time, so a larger memory is read as fast.
var floors = map[market.Class]Floor{
	"gpu/rtx-3060": {50e12, 2_200e6},  // 102 TOPS, 360 GB/s
	"gpu/rtx-3090": {140e12, 5_800e6}, // 284 TOPS, 936 GB/s
	"gpu/rtx-4090": {320e12, 6_300e6}, // 661 TOPS, 1,008 GB/s
	"gpu/a100":     {285e12, 9_700e6}, // 624 TOPS, 1,555 to 2,039 GB/s
	"gpu/h100":     {350e12, 25_400e6},
	"gpu/h200":     {350e12, 28_800e6},
	"gpu/b200":     {380e12, 50e9},   // 8,000 GB/s
	"gpu":          {10e12, 1_000e6}, // any GPU, a slice of one too
	"cpu":          {5e9, 8e6},       // each core of 1,000 milli-CPU, in portable code
}

// FloorOf is the floor of a unit: of its class, or of its family where the class is not told apart. False when it has neither.
func FloorOf(class market.Class, r market.Resources) (Floor, bool) {
	f, ok := floors[class]
	if !ok {
		f, ok = floors[class.Family()]
	}
	if class.Family() == "cpu" {
		f.Operations, f.Reads = f.Operations*uint64(r.MilliCPU)/1000, f.Reads*uint64(r.MilliCPU)/1000
	}
	return f, ok && f.Operations > 0 && f.Reads > 0
}

// What a challenge is sized by, microseconds.
const (
	// ProductTime is what the products take at the class's floor; less where challenge.MaxLeaves bounds them (1.126·10¹⁵ operations).
	ProductTime = 1_000_000
	// WalkTime is what the walk takes at most at the floor.
	WalkTime = 500_000
	// Allowance is added to each for what is neither arithmetic nor memory: starting kernels, hashing, a late packet.
	Allowance = 100_000
)

// Sizes of memory challenges.
const (
	gpuWork  = 64      // blocks in a cell: making one again takes 45 to 115 times as long as reading it
	slowWork = 128     // of cards that would else fill their memory so fast that two identities could share one (Instants)
	cpuWork  = 32      // a processor makes such a cell in less than a microsecond
	walkWork = 1 << 14 // work · steps: all that challenge.MaxRegeneration allows
	cpuShare = 16      // MiB for each core, at most: it fills in a second, so that an idle peer need not keep it
	maxSide  = 8192    // rows and columns of a product: wider ones save no generator worth it
	reserve  = 1 << 30 // bytes of a GPU that a dataset leaves to driver, context and products; and a sixteenth to other programs
)

// DatasetBytes is how many bytes of memory a unit's dataset takes, and so how much is proven: of a GPU fifteen sixteenths of what it
// claims less 1 GiB. The gibibyte holds the driver's context and the products, the sixteenth is for a desktop or another
// program: a unit whose card has less than that free cannot fill its dataset, and is not proven in that window.
func DatasetBytes(class market.Class, r market.Resources) uint64 {
	if class.Family() == "cpu" {
		return min(uint64(r.MemoryMiB)/2, uint64(r.MilliCPU)*cpuShare/1000) << 20
	}
	claimed := uint64(r.VRAMMiB) << 20
	return claimed - min(claimed, reserve+claimed/16)
}

// Plan is what a unit is asked: the same for everybody who knows its class and resources, so that a record can be held against
// it. The products take ProductTime at the class's floor, or as near as the bounds of a challenge let them. ErrShape when
// there is nothing to ask: no class with a floor, no memory.
func Plan(class market.Class, r market.Resources) (challenge.Shape, challenge.Walk, error) {
	floor, ok := FloorOf(class, r)
	memory := DatasetBytes(class, r)
	if !ok || memory < challenge.CellSize {
		return challenge.Shape{}, challenge.Walk{}, fmt.Errorf("%w: nothing can be asked of a unit of class %s with %d bytes of memory", challenge.ErrShape, class, memory)
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
	return planProducts(floor.Operations / 1_000_000 * ProductTime), w, nil
}

// planProducts is the shape nearest above so many operations: of the greatest depth, for that keeps what is hashed small, and of
// at least 8 products of the greatest side.
func planProducts(operations uint64) challenge.Shape {
	s := challenge.Shape{Rows: maxSide, Columns: maxSide, Depth: challenge.MaxDepth, Products: 1}
	for s.Rows > challenge.TileSide && s.Operations()*8 > operations {
		s.Rows, s.Columns = s.Rows/2, s.Columns/2
	}
	most := uint64(challenge.MaxLeaves) / (uint64(s.Rows) * uint64(s.Columns) / challenge.LeafWords)
	s.Products = uint32(min((operations+s.Operations()-1)/s.Operations(), most))
	s.Products = max(s.Products, 1)
	return s
}

// Deadlines are the microseconds that a unit may take for a shape and a walk: what its class needs at the floor.
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
