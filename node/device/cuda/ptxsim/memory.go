package ptxsim

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// GPU is the memory of a simulated GPU and runs its kernels. Its methods must not be called concurrently.
type GPU struct {
	total, used uint64
	next        uint64
	launches    uint64
	areas       []*area // by address
	last        *area   // the one found last
}

// area is one allocation.
type area struct {
	at, size uint64
	bytes    []byte
	// touched has the last writer of each word: 0 none, else launch·2³² + thread + 1; the host is launch 0.
	touched []uint64
}

// base is the first address, and gap the unused space between two allocations.
const (
	base = 0x7f32_0000_0000
	gap  = 4096
)

// New returns a GPU with memory bytes.
func New(memory uint64) *GPU { return &GPU{total: memory, next: base} }

// Memory returns the free and all bytes of the device's memory.
func (g *GPU) Memory() (free, total uint64) { return g.total - g.used, g.total }

// Alloc gives the address of size bytes. It is aligned to 256, and nothing was written there.
func (g *GPU) Alloc(size uint64) (uint64, error) {
	if size == 0 || size > g.total-g.used {
		return 0, fmt.Errorf("size: got %d bytes, want at most %d", size, g.total-g.used)
	}
	a := &area{at: g.next, size: size, bytes: make([]byte, (size+3)/4*4), touched: make([]uint64, (size+3)/4)}
	g.areas = append(g.areas, a)
	g.used += size
	g.next = (a.at + size + gap + 255) / 256 * 256
	return a.at, nil
}

// Free gives an allocation back.
func (g *GPU) Free(at uint64) error {
	i := slices.IndexFunc(g.areas, func(a *area) bool { return a.at == at })
	if i < 0 {
		return fmt.Errorf("no allocation at %#x", at)
	}
	g.used -= g.areas[i].size
	g.areas = slices.Delete(g.areas, i, i+1)
	g.last = nil
	return nil
}

// Write copies to the GPU. The address and length must be multiples of 4.
func (g *GPU) Write(at uint64, b []byte) error {
	a, err := g.find(at, uint64(len(b)))
	if err != nil {
		return err
	}
	copy(a.bytes[at-a.at:], b)
	for i := range len(b) / 4 {
		a.touched[(at-a.at)/4+uint64(i)] = 1
	}
	return nil
}

// Read copies from the GPU. Reading unwritten words is an error.
func (g *GPU) Read(b []byte, at uint64) error {
	a, err := g.find(at, uint64(len(b)))
	if err != nil {
		return err
	}
	for i := range (len(b) + 3) / 4 {
		if a.touched[(at-a.at)/4+uint64(i)] == 0 {
			return fmt.Errorf("the host reads %#x, which is unwritten", at+4*uint64(i))
		}
	}
	copy(b, a.bytes[at-a.at:])
	return nil
}

func (g *GPU) find(at, n uint64) (*area, error) {
	a := g.last
	if a == nil || at < a.at || at-a.at >= a.size {
		i, ok := slices.BinarySearchFunc(g.areas, at, func(a *area, at uint64) int {
			switch {
			case a.at+a.size <= at:
				return -1
			case a.at > at:
				return 1
			}
			return 0
		})
		if !ok {
			return nil, fmt.Errorf("%#x is in no allocation", at)
		}
		a = g.areas[i]
		g.last = a
	}
	if n > a.size-(at-a.at) {
		return nil, fmt.Errorf("%d bytes at %#x go beyond the allocation", n, at)
	}
	return a, nil
}

// load reads words of global memory as a thread of the current launch. Constant memory must not be written during the
// launch.
func (g *GPU) load(at uint64, to []uint32, thread uint64, constant bool) error {
	n := uint64(4 * len(to))
	if at%n != 0 {
		return fmt.Errorf("%#x is not aligned to %d", at, n)
	}
	a, err := g.find(at, n)
	if err != nil {
		return err
	}
	for i := range to {
		k := (at-a.at)/4 + uint64(i)
		switch by := a.touched[k]; {
		case by == 0:
			return fmt.Errorf("read of %#x, which is unwritten", at+uint64(4*i))
		case by>>32 == g.launches && (constant || by != thread):
			return fmt.Errorf("%#x is read, which thread %d wrote in this launch", at+uint64(4*i), uint32(by)-1)
		}
		to[i] = binary.LittleEndian.Uint32(a.bytes[4*k:])
	}
	return nil
}

// store writes words of global memory.
func (g *GPU) store(at uint64, from []uint32, thread uint64) error {
	n := uint64(4 * len(from))
	if at%n != 0 {
		return fmt.Errorf("%#x is not aligned to %d", at, n)
	}
	a, err := g.find(at, n)
	if err != nil {
		return err
	}
	for i, v := range from {
		k := (at-a.at)/4 + uint64(i)
		if by := a.touched[k]; by>>32 == g.launches && by != thread {
			return fmt.Errorf("%#x is written, which thread %d wrote in this launch", at+uint64(4*i), uint32(by)-1)
		}
		a.touched[k] = thread
		binary.LittleEndian.PutUint32(a.bytes[4*k:], v)
	}
	return nil
}

// cell is a word of shared memory, with its users since the last barrier.
type cell struct {
	value          uint32
	written        bool
	pending        bool   // a copy is on its way here
	wrote, read    uint32 // in which phase, from 1 on
	writer, reader int32  // thread; manyReaders when several read
}

const manyReaders = -1

// sharedWords gives the words of an address range.
func (b *block) sharedWords(at, n uint64) ([]cell, error) {
	if at%n != 0 {
		return nil, fmt.Errorf("shared %#x is not aligned to %d", at, n)
	}
	if at < sharedBase || at-sharedBase+n > b.entry.size {
		return nil, fmt.Errorf("%d bytes at shared %#x: out of range", n, at)
	}
	from := (at - sharedBase) / 4
	return b.shared[from : from+n/4], nil
}

func (b *block) loadShared(at uint64, to []uint32, thread int32) error {
	words, err := b.sharedWords(at, uint64(4*len(to)))
	if err != nil {
		return err
	}
	for i := range words {
		c := &words[i]
		switch {
		case c.pending:
			return fmt.Errorf("read of shared %#x during a copy to it", at+uint64(4*i))
		case !c.written:
			return fmt.Errorf("read of shared %#x, which is unwritten", at+uint64(4*i))
		case c.wrote == b.phase && c.writer != thread:
			return fmt.Errorf("shared %#x is read, which thread %d wrote since the last barrier",
				at+uint64(4*i), c.writer)
		}
		if c.read == b.phase && c.reader != thread {
			c.reader = manyReaders
		} else {
			c.read, c.reader = b.phase, thread
		}
		to[i] = c.value
	}
	return nil
}

// claim marks words as written by a thread, in this phase.
func (b *block) claim(at uint64, words []cell, thread int32) error {
	for i := range words {
		c := &words[i]
		switch {
		case c.pending:
			return fmt.Errorf("write of shared %#x during a copy to it", at+uint64(4*i))
		case c.wrote == b.phase && c.writer != thread:
			return fmt.Errorf("shared %#x is written, which thread %d wrote since the last barrier",
				at+uint64(4*i), c.writer)
		case c.read == b.phase && c.reader != thread:
			return fmt.Errorf("shared %#x is written, which another thread read since the last barrier", at+uint64(4*i))
		}
		c.wrote, c.writer, c.written = b.phase, thread, true
	}
	return nil
}

func (b *block) storeShared(at uint64, from []uint32, thread int32) error {
	words, err := b.sharedWords(at, uint64(4*len(from)))
	if err != nil {
		return err
	}
	if err := b.claim(at, words, thread); err != nil {
		return err
	}
	for i, v := range from {
		words[i].value = v
	}
	return nil
}

// memory registers loads and stores.
func memory() {
	for _, kind := range []string{"u32", "s32", "u64"} {
		for _, count := range []struct {
			name string
			n    int
		}{{"", 1}, {".v2", 2}, {".v4", 4}} {
			if kind == "u64" && count.n == 4 {
				continue // more than 16 bytes
			}
			for _, space := range []string{"global", "global.nc", "shared"} {
				opcodes["ld."+space+count.name+"."+kind] = access(space, kind, count.n, true)
			}
			opcodes["st.global"+count.name+"."+kind] = access("global", kind, count.n, false)
			opcodes["st.shared"+count.name+"."+kind] = access("shared", kind, count.n, false)
		}
	}
	opcodes["ld.param.u32"] = loadParam(word)
	opcodes["ld.param.u64"] = loadParam(double)
}

// access builds a load or a store of n registers.
func access(space, kind string, n int, load bool) builder {
	regs, pointer, per := word, double, 1
	if kind == "u64" {
		regs, per = double, 2
	}
	if space == "shared" {
		pointer = word
	}
	return func(e *entry, operands []string) (func(*warp, uint32) error, error) {
		if err := arity(operands, 2); err != nil {
			return nil, err
		}
		value, address := operands[1], operands[0]
		if load {
			value, address = address, value
		}
		vector, err := e.vector(value, n, regs)
		if err != nil {
			return nil, err
		}
		at, err := e.place(address, pointer)
		if err != nil {
			return nil, err
		}
		move := mover(space, load)
		return func(w *warp, mask uint32) error {
			addresses, err := w.addresses(at, mask)
			if err != nil {
				return err
			}
			var values [4]*lanes
			for i, r := range vector {
				if load {
					values[i] = w.write(r, mask)
				} else if values[i], err = w.read(source{reg: r}, mask); err != nil {
					return err
				}
			}
			var buffer [4]uint32
			words := buffer[:n*per]
			for rest := mask; rest != 0; rest &= rest - 1 {
				l := bits.TrailingZeros32(rest)
				if !load {
					for i, v := range values[:n] {
						for k := range per {
							words[i*per+k] = uint32(v[l] >> (32 * k))
						}
					}
				}
				if err := move(w, addresses[l], words, l); err != nil {
					return w.fault(1<<l, err.Error())
				}
				if load {
					for i, v := range values[:n] {
						v[l] = join(words[i*per:], per)
					}
				}
			}
			return nil
		}, nil
	}
}

func join(words []uint32, per int) uint64 {
	v := uint64(words[0])
	if per == 2 {
		v |= uint64(words[1]) << 32
	}
	return v
}

// mover returns the load or the store of a space: of the words at an address, by a thread of a warp.
func mover(space string, load bool) func(w *warp, at uint64, words []uint32, lane int) error {
	constant := space == "global.nc"
	switch {
	case space == "shared" && load:
		return func(w *warp, at uint64, to []uint32, lane int) error {
			return w.block.loadShared(at, to, w.first+int32(lane))
		}
	case space == "shared":
		return func(w *warp, at uint64, from []uint32, lane int) error {
			return w.block.storeShared(at, from, w.first+int32(lane))
		}
	case load:
		return func(w *warp, at uint64, to []uint32, lane int) error {
			return w.block.gpu.load(at, to, w.global(lane), constant)
		}
	}
	return func(w *warp, at uint64, from []uint32, lane int) error {
		return w.block.gpu.store(at, from, w.global(lane))
	}
}

func loadParam(kind regKind) builder {
	return func(e *entry, operands []string) (func(*warp, uint32) error, error) {
		if err := arity(operands, 2); err != nil {
			return nil, err
		}
		to, err := e.target(operands[0], kind)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(e.params, func(p param) bool { return "["+p.name+"]" == operands[1] })
		if i < 0 || e.params[i].wide != (kind == double) {
			return nil, fmt.Errorf("no parameter of this size: %s", operands[1])
		}
		return func(w *warp, mask uint32) error {
			out := w.write(to, mask)
			for l := range out {
				if mask>>l&1 != 0 {
					out[l] = w.block.args[i]
				}
			}
			return nil
		}, nil
	}
}
