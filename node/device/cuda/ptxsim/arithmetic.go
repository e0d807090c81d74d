package ptxsim

import (
	"math/bits"
)

// builder makes an instruction's work from its operands.
type builder func(e *entry, operands []string) (func(w *warp, mask uint32) error, error)

// opcodes are all opcodes that are known, beside ret, bra and bar.sync.
var opcodes map[string]builder

func init() {
	opcodes = map[string]builder{}
	arithmetic()
	comparisons()
	memory()
	tensor()
}

// compute is an instruction with one result and sources of given kinds, thread by thread.
func compute(to regKind, from []regKind, f func(v [4]uint64) uint64) builder {
	return func(e *entry, operands []string) (func(*warp, uint32) error, error) {
		if err := arity(operands, 1+len(from)); err != nil {
			return nil, err
		}
		target, err := e.target(operands[0], to)
		if err != nil {
			return nil, err
		}
		sources := make([]source, len(from))
		for i, kind := range from {
			if sources[i], err = e.source(operands[1+i], kind); err != nil {
				return nil, err
			}
		}
		keep := ^uint64(0)
		if to == word {
			keep = 1<<32 - 1
		}
		return func(w *warp, mask uint32) error {
			var in [4]*lanes
			for i, s := range sources {
				if in[i], err = w.read(s, mask); err != nil {
					return err
				}
			}
			out := w.write(target, mask)
			for rest := mask; rest != 0; rest &= rest - 1 {
				l := bits.TrailingZeros32(rest)
				var v [4]uint64
				for i := range sources {
					v[i] = in[i][l]
				}
				out[l] = f(v) & keep
			}
			return nil
		}, nil
	}
}

// both registers an operation on two values of 32 and of 64 bits.
func both(name32, name64 string, f func(a, b uint64) uint64) {
	g := func(v [4]uint64) uint64 { return f(v[0], v[1]) }
	if name32 != "" {
		opcodes[name32] = compute(word, []regKind{word, word}, g)
	}
	if name64 != "" {
		opcodes[name64] = compute(double, []regKind{double, double}, g)
	}
}

func arithmetic() {
	both("add.u32", "add.u64", func(a, b uint64) uint64 { return a + b })
	both("sub.u32", "sub.u64", func(a, b uint64) uint64 { return a - b })
	both("mul.lo.u32", "mul.lo.u64", func(a, b uint64) uint64 { return a * b })
	both("and.b32", "and.b64", func(a, b uint64) uint64 { return a & b })
	both("or.b32", "or.b64", func(a, b uint64) uint64 { return a | b })
	both("xor.b32", "xor.b64", func(a, b uint64) uint64 { return a ^ b })
	both("min.u32", "min.u64", func(a, b uint64) uint64 { return min(a, b) })
	opcodes["div.u32"] = divide
	both("", "mul.hi.u64", func(a, b uint64) uint64 {
		hi, _ := bits.Mul64(a, b)
		return hi
	})
	opcodes["mul.wide.u32"] = compute(double, []regKind{word, word}, func(v [4]uint64) uint64 { return v[0] * v[1] })
	opcodes["mad.lo.u32"] = compute(word, []regKind{word, word, word}, func(v [4]uint64) uint64 { return v[0]*v[1] + v[2] })
	opcodes["mad.wide.u32"] = compute(double, []regKind{word, word, double}, func(v [4]uint64) uint64 { return v[0]*v[1] + v[2] })
	// Shifts by more than the size give 0; their count has 32 bits whatever is shifted.
	shifts := func(name string, kind regKind, f func(a uint64, n uint64) uint64) {
		opcodes[name] = compute(kind, []regKind{kind, word}, func(v [4]uint64) uint64 { return f(v[0], v[1]) })
	}
	left := func(a, n uint64) uint64 { return a << n }
	right := func(a, n uint64) uint64 { return a >> n }
	shifts("shl.b32", word, left)
	shifts("shl.b64", double, left)
	shifts("shr.u32", word, right)
	shifts("shr.u64", double, right)
	opcodes["shf.l.wrap.b32"] = compute(word, []regKind{word, word, word}, func(v [4]uint64) uint64 {
		return (v[1]<<32 | v[0]) << (v[2] & 31) >> 32
	})
	opcodes["shf.r.wrap.b32"] = compute(word, []regKind{word, word, word}, func(v [4]uint64) uint64 {
		return (v[1]<<32 | v[0]) >> (v[2] & 31)
	})
	opcodes["prmt.b32"] = compute(word, []regKind{word, word, word}, permute)
	opcodes["lop3.b32"] = compute(word, []regKind{word, word, word, word}, lookup)
	opcodes["dp4a.s32.s32"] = compute(word, []regKind{word, word, word}, func(v [4]uint64) uint64 {
		return uint64(uint32(int32(uint32(v[2])) + dot4(uint32(v[0]), uint32(v[1]))))
	})
	for _, name := range []string{"mov.u32", "mov.s32"} {
		opcodes[name] = compute(word, []regKind{word}, func(v [4]uint64) uint64 { return v[0] })
	}
	opcodes["mov.u64"] = compute(double, []regKind{double}, func(v [4]uint64) uint64 { return v[0] })
	opcodes["cvt.u64.u32"] = compute(double, []regKind{word}, func(v [4]uint64) uint64 { return v[0] })
	opcodes["cvta.to.global.u64"] = compute(double, []regKind{double}, func(v [4]uint64) uint64 { return v[0] })
	opcodes["selp.b32"] = compute(word, []regKind{word, word, predicate}, func(v [4]uint64) uint64 {
		if v[2] != 0 {
			return v[0]
		}
		return v[1]
	})
	opcodes["mov.b64"] = unpack
}

// divide is div.u32. A GPU's result for a divisor of 0 is unspecified.
func divide(e *entry, operands []string) (func(*warp, uint32) error, error) {
	run, err := compute(word, []regKind{word, word}, func(v [4]uint64) uint64 { return v[0] / v[1] })(e, operands)
	if err != nil {
		return nil, err
	}
	by, err := e.source(operands[2], word)
	if err != nil {
		return nil, err
	}
	return func(w *warp, mask uint32) error {
		v, err := w.read(by, mask)
		if err != nil {
			return err
		}
		for rest := mask; rest != 0; rest &= rest - 1 {
			if l := bits.TrailingZeros32(rest); v[l] == 0 {
				return w.fault(1<<l, "divides by 0")
			}
		}
		return run(w, mask)
	}, nil
}

// permute picks four bytes out of eight; bit 3 of a selector repeats the byte's sign.
func permute(v [4]uint64) uint64 {
	all := v[1]<<32 | v[0]
	var out uint64
	for i := range 4 {
		s := v[2] >> (4 * i) & 15
		b := all >> (8 * (s & 7)) & 255
		if s&8 != 0 {
			b = uint64(uint8(int8(b) >> 7))
		}
		out |= b << (8 * i)
	}
	return out
}

// lookup is any function of three bits, bit by bit: entry a·4 + b·2 + c of the table.
func lookup(v [4]uint64) uint64 {
	var out uint64
	for i := range 8 {
		if v[3]>>i&1 == 0 {
			continue
		}
		term := ^uint64(0)
		for k, x := range []uint64{v[2], v[1], v[0]} {
			if i>>k&1 == 0 {
				x = ^x
			}
			term &= x
		}
		out |= term
	}
	return out
}

// dot4 is the sum of four products of int8.
func dot4(a, b uint32) int32 {
	var s int32
	for i := 0; i < 32; i += 8 {
		s += int32(int8(a>>i)) * int32(int8(b>>i))
	}
	return s
}

// unpack is mov.b64 {lo, hi}, v.
func unpack(e *entry, operands []string) (func(*warp, uint32) error, error) {
	if err := arity(operands, 2); err != nil {
		return nil, err
	}
	to, err := e.vector(operands[0], 2, word)
	if err != nil {
		return nil, err
	}
	from, err := e.source(operands[1], double)
	if err != nil {
		return nil, err
	}
	return func(w *warp, mask uint32) error {
		v, err := w.read(from, mask)
		if err != nil {
			return err
		}
		lo, hi := w.write(to[0], mask), w.write(to[1], mask)
		for rest := mask; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			lo[l], hi[l] = v[l]&(1<<32-1), v[l]>>32
		}
		return nil
	}, nil
}

func comparisons() {
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	for name, f := range map[string]func(a, b uint64) bool{
		"eq": func(a, b uint64) bool { return a == b },
		"ne": func(a, b uint64) bool { return a != b },
		"lt": func(a, b uint64) bool { return a < b },
		"le": func(a, b uint64) bool { return a <= b },
		"gt": func(a, b uint64) bool { return a > b },
		"ge": func(a, b uint64) bool { return a >= b },
	} {
		opcodes["setp."+name+".u32"] = compute(predicate, []regKind{word, word}, func(v [4]uint64) uint64 { return truth(f(v[0], v[1])) })
		opcodes["setp."+name+".u64"] = compute(predicate, []regKind{double, double}, func(v [4]uint64) uint64 { return truth(f(v[0], v[1])) })
	}
}
