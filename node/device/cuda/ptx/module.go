package ptx

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCapability means that a GPU is older than the kernels.
var ErrCapability = errors.New("the GPU is of a compute capability below 6.1, which has no dp4a")

// Compute capabilities, major·10 + minor.
const (
	capabilityDP4A = 61
	capabilityMMA  = 80
)

// Kind is the type of a parameter.
type Kind uint8

// The kinds of parameters.
const (
	U32 Kind = iota
	U64
	Pointer // an address in the GPU's memory
)

// Size of the parameter, bytes.
func (k Kind) Size() int {
	if k == U32 {
		return 4
	}
	return 8
}

func (k Kind) String() string {
	if k == U32 {
		return "u32"
	}
	return "u64"
}

// Param is one parameter of a kernel.
type Param struct {
	Name string
	Kind Kind
}

// Kernel is how one kernel is launched: Params in order, in blocks of Threads.
type Kernel struct {
	Name    string
	Threads int
	Params  []Param
}

// Sides of the work of one block of a kernel.
const (
	BlockSide  = 128 // gemm: rows and columns of C
	BlockTiles = 4   // tiles: tiles
)

// The kernels of every module.
var (
	// Rows makes lines from first on: blocks is K/64, total the number of blocks of all lines, word14 the matrix (2·t
	// for A_t, 2·t + 1 for B_t).
	Rows = Kernel{"rows", 256, append([]Param{{"out", Pointer}}, append(keyParams(),
		Param{"word14", U32}, Param{"first", U32}, Param{"blocks", U32}, Param{"total", U32})...)}
	// Gemm makes C = A·Bᵀ: 128·rows lines of A by 128·columns lines of B, each of depth bytes. One block for each 128 ×
	// 128.
	Gemm = Kernel{"gemm", 256, []Param{
		{"a", Pointer}, {"b", Pointer}, {"c", Pointer}, {"depth", U32}, {"rows", U32}, {"columns", U32},
	}}
	// Tiles hashes count tiles, across of them in a row of tiles, of a C with rows of pitch int32.
	Tiles = Kernel{"tiles", 128, []Param{
		{"c", Pointer}, {"out", Pointer}, {"pitch", U32}, {"across", U32}, {"count", U32},
	}}
	// Fill makes count cells from first on of the dataset at out, each of work blocks.
	Fill = Kernel{"fill", 256, append([]Param{{"out", Pointer}}, append(keyParams(),
		Param{"first", U64}, Param{"count", U32}, Param{"work", U32})...)}
	// Walk does steps steps with count walkers, starting at number first. They start at their positions in ends, or at
	// those of the walk key if begin is not 0; ends begins with walker first.
	Walk = Kernel{"walk", 128, []Param{
		{"data", Pointer}, {"ends", Pointer}, {"key", U64}, {"cells", U64},
		{"first", U32}, {"count", U32}, {"steps", U32}, {"begin", U32},
	}}
	// Groups hashes the ends of count groups of 64 walkers each.
	Groups = Kernel{"groups", 128, []Param{{"ends", Pointer}, {"out", Pointer}, {"count", U32}}}
)

func keyParams() []Param {
	var p []Param
	for _, n := range names("k", 8) {
		p = append(p, Param{n, U32})
	}
	return p
}

// Kernels are all of them.
func Kernels() []Kernel { return []Kernel{Rows, Gemm, Tiles, Fill, Walk, Groups} }

// Module is the text of all kernels for a compute capability, major·10 + minor. ErrCapability for GPUs before 2016.
func Module(capability uint32) (string, error) {
	version, target, gemm := "7.0", "sm_80", mma
	switch {
	case capability < capabilityDP4A:
		return "", fmt.Errorf("%w: %d.%d", ErrCapability, capability/10, capability%10)
	case capability < capabilityMMA:
		version, target, gemm = "6.0", "sm_61", dp4a
	}
	return module(version, target, gemm), nil
}

func module(version, target string, gemm func() string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".version %s\n.target %s\n.address_size 64\n", version, target)
	for _, text := range []string{rows(), gemm(), tiles(), fill(), walk(), groups()} {
		b.WriteString("\n")
		b.WriteString(text)
	}
	return b.String()
}
