package audit

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

// part is a factor by which less is asked in a program that takes the PTX interpreter for a GPU, and 1 in all others.
func part(factor uint64) uint64 {
	if Interpreted() {
		return factor
	}
	return 1
}
