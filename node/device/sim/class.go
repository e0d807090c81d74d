package sim

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/challenge"
)

// Class is a class of simulated hardware: its rates with this network's kernels, not those of the data sheet.
type Class struct {
	Name       string
	Market     market.Class
	Resources  market.Resources // of the whole device
	Operations float64          // int8 multiplications and additions a second
	Reads      float64          // of 32 bytes each at a random place, a second
	HostReads  float64          // the same over the bus, from the host's memory
	Blocks     float64          // ChaCha8 blocks a second: the cost of making cells again
	Capability uint32
}

// The classes. Peaks, memory rates, multiprocessors and clocks are of NVIDIA's data sheets. The rest is assumed, until
// it is measured: arithmetic at 75 % of the peak on Ampere and Ada; on Hopper and Blackwell, where mma.sync is slower
// than wgmma and tcgen05, the limit by the kernel's traffic through shared memory; half a read for each 64 bytes that
// the memory could move, but for the H100 and the H200, with published rates (see verify/audit/plan.go); blocks at
// 400 operations of 32 bits, on as many integer lanes as there are, all of them used; over PCIe 4 0.4 and over PCIe 5
// 0.8 billion reads a second. CPUs: the AMX rate is 4.8 TOPS a core as measured in registers, halved for memory; other
// figures are those of one core of this project's test machine, times the cores.
var (
	// 102 TOPS, 360 GB/s, 28 multiprocessors · 64 lanes · 1.78 GHz, and in this order below
	RTX3060 = gpu("RTX 3060", "gpu/rtx-3060", 12_288, 75, 2.8, 0.4, 8, 86)
	RTX3090 = gpu("RTX 3090", "gpu/rtx-3090", 24_576, 210, 7.3, 0.4, 22, 86) // 284 TOPS, 936 GB/s, 82 · 64 · 1.70
	RTX4090 = gpu("RTX 4090", "gpu/rtx-4090", 24_564, 480, 7.9, 0.4, 51, 89) // 661 TOPS, 1,008 GB/s, 128 · 64 · 2.52
	A100    = gpu("A100 80GB", "gpu/a100", 81_920, 430, 16, 0.4, 24, 80)     // 624 TOPS, 2,039 GB/s, 108 · 64 · 1.41
	H100    = gpu("H100 SXM", "gpu/h100", 81_559, 530, 31.8, 0.8, 40, 90)    // 1,979 TOPS, 3,350 GB/s, 132 · 64 · 1.98
	H200    = gpu("H200", "gpu/h200", 143_771, 530, 36, 0.8, 40, 90)         // 1,979 TOPS, 4,800 GB/s, 132 · 64 · 1.98
	B200    = gpu("B200-like", "gpu/b200", 183_359, 570, 62, 0.8, 90, 100)   // 4,500 TOPS, 8,000 GB/s, 148 · 128 · 1.90
	CPU16   = processor("16-core CPU", 16, 64, 0.16, 0.3, 1)                 // portable Go: 10 GOPS, 20 M reads a core
	CPU16x  = processor("16-core CPU, vector code", 16, 64, 2, 0.6, 1)       // AVX2
	AMX64   = processor("64-core AMX CPU", 64, 512, 150, 2.5, 6)             // 8 channels of DDR5
	GPUs    = []Class{RTX3060, RTX3090, RTX4090, A100, H100, H200, B200}     // hardware of honest peers
	Classes = append(append([]Class{}, GPUs...), CPU16, CPU16x, AMX64)       // all
)

func gpu(name string, class market.Class, vramMiB uint32, tops, reads, host, blocks float64, capability uint32) Class {
	return Class{
		Name: name, Market: class, Resources: market.Resources{VRAMMiB: vramMiB}, Capability: capability,
		Operations: tops * 1e12, Reads: reads * 1e9, HostReads: host * 1e9, Blocks: blocks * 1e9,
	}
}

func processor(name string, cores, memoryGiB uint32, tops, reads, blocks float64) Class {
	return Class{
		Name: name, Market: "cpu", Resources: market.Resources{MilliCPU: 1000 * cores, MemoryMiB: memoryGiB << 10},
		Operations: tops * 1e12, Reads: reads * 1e9, HostReads: reads * 1e9, Blocks: blocks * 1e9,
	}
}

// Memory is how many bytes a dataset may take at most.
func (c Class) Memory() uint64 {
	if c.Resources.VRAMMiB > 0 {
		return uint64(c.Resources.VRAMMiB) << 20
	}
	return uint64(c.Resources.MemoryMiB) << 20
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Multiplies is how long the products of a shape take.
func (c Class) Multiplies(s challenge.Shape) time.Duration {
	return seconds(float64(s.Operations()) / c.Operations)
}

// Share is the place of a dataset's parts, of 1: the rest beside Resident and Host is recomputed when it is read.
type Share struct{ Resident, Host float64 }

// Whole is a fully resident dataset.
var Whole = Share{Resident: 1}

// Walks returns the time of a walk over a dataset of which only a share is resident. Reading from memory, reading over
// the bus and recomputing cells run at the same time: this is the best that a dishonest device can do.
func (c Class) Walks(w challenge.Walk, have Share) time.Duration {
	reads := float64(w.Reads())
	missing := max(1-have.Resident-have.Host, 0)
	return seconds(reads * max(have.Resident/c.Reads, have.Host/c.HostReads, missing*float64(w.Work)/c.Blocks))
}

// Fills is how long a dataset takes to make.
func (c Class) Fills(cells uint64, work uint32) time.Duration {
	return seconds(float64(cells) * float64(work) / c.Blocks)
}
