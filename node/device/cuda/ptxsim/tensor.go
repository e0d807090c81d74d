package ptxsim

import (
	"fmt"
	"math/bits"
	"slices"
)

// tensor registers the instructions of whole warps, and asynchronous copies.
func tensor() {
	opcodes["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = ldmatrix
	opcodes["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"] = mma
	opcodes["cp.async.cg.shared.global"] = copyAsync
	opcodes["cp.async.commit_group"] = func(_ *entry, operands []string) (func(*warp, uint32) error, error) {
		return func(w *warp, mask uint32) error {
			for rest := mask; rest != 0; rest &= rest - 1 {
				c := &w.copies[bits.TrailingZeros32(rest)]
				c.groups = append(c.groups, c.open)
				c.open = nil
			}
			return nil
		}, arity(operands, 0)
	}
	opcodes["cp.async.wait_group"] = waitGroup
}

const wholeWarp = 1<<32 - 1

// ldmatrix reads four 8 × 8 matrices of 16 bits. Threads 8·i … 8·i+7 point to the rows of 16 bytes of matrix i. Thread
// l gets elements 2·(l mod 4) and the next of row l/4 of each.
func ldmatrix(e *entry, operands []string) (func(*warp, uint32) error, error) {
	if err := arity(operands, 2); err != nil {
		return nil, err
	}
	to, err := e.vector(operands[0], 4, word)
	if err != nil {
		return nil, err
	}
	at, err := e.place(operands[1], word)
	if err != nil {
		return nil, err
	}
	return func(w *warp, mask uint32) error {
		if mask != wholeWarp {
			return w.fault(^mask, "does not take part in ldmatrix")
		}
		rows, err := w.addresses(at, mask)
		if err != nil {
			return err
		}
		for i, r := range to {
			out := w.write(r, mask)
			for l := range out {
				row := rows[8*i+l/4]
				if row%16 != 0 {
					return w.fault(1<<(8*i+l/4), fmt.Sprintf("a row at shared %#x, not aligned to 16", row))
				}
				var v [1]uint32
				if err := w.block.loadShared(row+uint64(4*(l%4)), v[:], w.first+int32(l)); err != nil {
					return w.fault(1<<l, err.Error())
				}
				out[l] = uint64(v[0])
			}
		}
		return nil
	}, nil
}

// mma is D = A·B + C with A 16 × 32 and B 32 × 8 of int8, C and D 16 × 8 of int32. With g = lane/4 and t = lane mod 4:
//
//	A  register i, byte b   row g + 8·(i mod 2), column 4·t + b + 16·(i/2)
//	B  register i, byte b   row 4·t + b + 16·i, column g
//	C  register i           row g + 8·(i/2), column 2·t + i mod 2
func mma(e *entry, operands []string) (func(*warp, uint32) error, error) {
	if err := arity(operands, 4); err != nil {
		return nil, err
	}
	var regs [4][]int
	for i, n := range []int{4, 4, 2, 4} {
		var err error
		if regs[i], err = e.vector(operands[i], n, word); err != nil {
			return nil, err
		}
	}
	sources := slices.Concat(regs[1], regs[2], regs[3])
	return func(w *warp, mask uint32) error {
		if mask != wholeWarp {
			return w.fault(^mask, "does not take part in mma")
		}
		var in [10]*lanes
		for i, r := range sources {
			var err error
			if in[i], err = w.read(source{reg: r}, mask); err != nil {
				return err
			}
		}
		var a [16][32]int32
		var b [8][32]int32 // its columns
		for l := range 32 {
			g, t := l/4, l%4
			for byteAt := range 4 {
				for i := range 4 {
					a[g+8*(i%2)][4*t+byteAt+16*(i/2)] = int32(int8(in[i][l] >> (8 * byteAt)))
				}
				for i := range 2 {
					b[g][4*t+byteAt+16*i] = int32(int8(in[4+i][l] >> (8 * byteAt)))
				}
			}
		}
		var c [4]lanes // copied before D is written: both may use the same registers in any order
		for i := range c {
			c[i] = *in[6+i]
		}
		for i, r := range regs[0] {
			d := w.write(r, mask)
			for l := range 32 {
				row, column := &a[l/4+8*(i/2)], &b[2*(l%4)+i%2]
				sum := int32(uint32(c[i][l]))
				for k := range row {
					sum += row[k] * column[k]
				}
				d[l] = uint64(uint32(sum))
			}
		}
		return nil
	}, nil
}

// pendingCopy is 16 bytes on their way to shared memory.
type pendingCopy struct {
	to   uint64
	data [4]uint32
}

// copies are a thread's asynchronous copies: those of no group yet, and the groups that it has not waited for.
type copies struct {
	open   []pendingCopy
	groups [][]pendingCopy
}

// copyAsync starts a copy of 16 bytes. No thread may access the destination until the thread has waited for the copy:
// in hardware the data may arrive at any time until then.
func copyAsync(e *entry, operands []string) (func(*warp, uint32) error, error) {
	if err := arity(operands, 3); err != nil {
		return nil, err
	}
	to, err := e.place(operands[0], word)
	if err != nil {
		return nil, err
	}
	from, err := e.place(operands[1], double)
	if err != nil {
		return nil, err
	}
	if operands[2] != "16" {
		return nil, fmt.Errorf("a copy of %s bytes", operands[2])
	}
	return func(w *warp, mask uint32) error {
		targets, err := w.addresses(to, mask)
		if err != nil {
			return err
		}
		sources, err := w.addresses(from, mask)
		if err != nil {
			return err
		}
		for rest := mask; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			c := pendingCopy{to: targets[l]}
			err := w.block.gpu.load(sources[l], c.data[:], w.global(l), true)
			var words []cell
			if err == nil {
				words, err = w.block.sharedWords(c.to, 16)
			}
			if err == nil {
				err = w.block.claim(c.to, words, w.first+int32(l))
			}
			if err != nil {
				return w.fault(1<<l, err.Error())
			}
			for i := range words {
				words[i].pending = true
			}
			w.copies[l].open = append(w.copies[l].open, c)
		}
		return nil
	}, nil
}

// waitGroup ends all of a thread's copies but those of its latest groups.
func waitGroup(_ *entry, operands []string) (func(*warp, uint32) error, error) {
	if err := arity(operands, 1); err != nil {
		return nil, err
	}
	n, err := number(operands[0])
	if err != nil || n > 8 {
		return nil, fmt.Errorf("wait for all but %s groups", operands[0])
	}
	return func(w *warp, mask uint32) error {
		for rest := mask; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			c := &w.copies[l]
			done := max(0, len(c.groups)-int(n))
			for _, group := range c.groups[:done] {
				for _, p := range group {
					words, err := w.block.sharedWords(p.to, 16)
					if err != nil {
						return w.fault(1<<l, err.Error())
					}
					for i := range words {
						words[i].pending = false
						words[i].value = p.data[i]
					}
					if err := w.block.claim(p.to, words, w.first+int32(l)); err != nil {
						return w.fault(1<<l, err.Error())
					}
				}
			}
			c.groups = c.groups[done:]
		}
		return nil
	}, nil
}
