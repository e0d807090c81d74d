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

// operation sets a result in all threads of a warp at once. The result may be one of its sources.
type operation func(out *lanes, in [4]*lanes)

// compute is an instruction with one result and sources of given kinds. Its operation also runs for threads that do not
// take part: their results are dropped.
func compute(to regKind, from []regKind, f operation) builder {
	return func(e *entry, operands []string) (func(*warp, uint32) error, error) {
		target, sources, err := e.operands(operands, to, from)
		if err != nil {
			return nil, err
		}
		return func(w *warp, mask uint32) error {
			var in [4]*lanes
			for i, s := range sources {
				if in[i], err = w.read(s, mask); err != nil {
					return err
				}
			}
			if mask == wholeWarp {
				f(w.write(target, mask), in)
				return nil
			}
			var all lanes
			f(&all, in)
			out := w.write(target, mask)
			for rest := mask; rest != 0; rest &= rest - 1 {
				l := bits.TrailingZeros32(rest)
				out[l] = all[l]
			}
			return nil
		}, nil
	}
}

// operands reads a target and sources of given kinds.
func (e *entry) operands(text []string, to regKind, from []regKind) (target int, sources []source, err error) {
	if err := arity(text, 1+len(from)); err != nil {
		return 0, nil, err
	}
	if target, err = e.target(text[0], to); err != nil {
		return 0, nil, err
	}
	sources = make([]source, len(from))
	for i, kind := range from {
		if sources[i], err = e.source(text[1+i], kind); err != nil {
			return 0, nil, err
		}
	}
	return target, sources, nil
}

// low has the bits of a word.
const low = 1<<32 - 1

// both registers an operation on two values of 32 and of 64 bits.
func both(name32, name64 string, f operation) {
	opcodes[name32] = compute(word, []regKind{word, word}, narrow(f))
	opcodes[name64] = compute(double, []regKind{double, double}, f)
}

// narrow is an operation with results that are cut to 32 bits.
func narrow(f operation) operation {
	return func(out *lanes, in [4]*lanes) {
		f(out, in)
		for l := range out {
			out[l] &= low
		}
	}
}

// each is an operation that runs thread by thread and need not be fast.
func each(f func(v [4]uint64) uint64) operation {
	return func(out *lanes, in [4]*lanes) {
		for l := range out {
			var v [4]uint64
			for i, from := range in {
				if from != nil {
					v[i] = from[l]
				}
			}
			out[l] = f(v)
		}
	}
}

func copied(out *lanes, in [4]*lanes) { *out = *in[0] }

func arithmetic() {
	both("add.u32", "add.u64", func(out *lanes, in [4]*lanes) {
		a, b := in[0], in[1]
		for l := range out {
			out[l] = a[l] + b[l]
		}
	})
	both("xor.b32", "xor.b64", func(out *lanes, in [4]*lanes) {
		a, b := in[0], in[1]
		for l := range out {
			out[l] = a[l] ^ b[l]
		}
	})
	both("sub.u32", "sub.u64", func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] - in[1][l]
		}
	})
	both("and.b32", "and.b64", func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] & in[1][l]
		}
	})
	both("or.b32", "or.b64", func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] | in[1][l]
		}
	})
	both("min.u32", "min.u64", func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = min(in[0][l], in[1][l])
		}
	})
	opcodes["div.u32"] = divide
	opcodes["mul.hi.u64"] = compute(double, []regKind{double, double}, func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l], _ = bits.Mul64(in[0][l], in[1][l])
		}
	})
	product := func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] * in[1][l]
		}
	}
	both("mul.lo.u32", "mul.lo.u64", product)
	opcodes["mul.wide.u32"] = compute(double, []regKind{word, word}, product)
	multiplyAdd := func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l]*in[1][l] + in[2][l]
		}
	}
	opcodes["mad.lo.u32"] = compute(word, []regKind{word, word, word}, narrow(multiplyAdd))
	opcodes["mad.wide.u32"] = compute(double, []regKind{word, word, double}, multiplyAdd)
	opcodes["dp4a.s32.s32"] = compute(word, []regKind{word, word, word}, func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = uint64(uint32(int32(uint32(in[2][l])) + dot4(uint32(in[0][l]), uint32(in[1][l]))))
		}
	})
	for _, name := range []string{"mov.u32", "mov.s32"} {
		opcodes[name] = compute(word, []regKind{word}, copied)
	}
	opcodes["mov.u64"] = compute(double, []regKind{double}, copied)
	opcodes["cvt.u64.u32"] = compute(double, []regKind{word}, copied)
	opcodes["cvta.to.global.u64"] = compute(double, []regKind{double}, copied)
	opcodes["selp.b32"] = compute(word, []regKind{word, word, predicate}, each(func(v [4]uint64) uint64 {
		if v[2] != 0 {
			return v[0]
		}
		return v[1]
	}))
	opcodes["mov.b64"] = unpack
	shifts()
	opcodes["prmt.b32"] = permute
	opcodes["lop3.b32"] = lookup
}

// shifts registers shifts. A shift by more than the size gives 0; counts have 32 bits for every size.
func shifts() {
	left := func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] << in[1][l]
		}
	}
	right := func(out *lanes, in [4]*lanes) {
		for l := range out {
			out[l] = in[0][l] >> in[1][l]
		}
	}
	opcodes["shl.b32"] = compute(word, []regKind{word, word}, narrow(left))
	opcodes["shl.b64"] = compute(double, []regKind{double, word}, left)
	opcodes["shr.u32"] = compute(word, []regKind{word, word}, right)
	opcodes["shr.u64"] = compute(double, []regKind{double, word}, right)
	opcodes["shf.l.wrap.b32"] = compute(word, []regKind{word, word, word}, func(out *lanes, in [4]*lanes) {
		a, b, n := in[0], in[1], in[2]
		for l := range out {
			out[l] = (b[l]<<32 | a[l]) << (n[l] & 31) >> 32
		}
	})
	opcodes["shf.r.wrap.b32"] = compute(word, []regKind{word, word, word}, func(out *lanes, in [4]*lanes) {
		a, b, n := in[0], in[1], in[2]
		for l := range out {
			out[l] = (b[l]<<32 | a[l]) >> (n[l] & 31) & low
		}
	})
}

// divide is div.u32. A GPU's result for a divisor of 0 is unspecified.
func divide(e *entry, text []string) (func(*warp, uint32) error, error) {
	target, sources, err := e.operands(text, word, []regKind{word, word})
	if err != nil {
		return nil, err
	}
	return func(w *warp, mask uint32) error {
		a, err := w.read(sources[0], mask)
		if err != nil {
			return err
		}
		b, err := w.read(sources[1], mask)
		if err != nil {
			return err
		}
		out := w.write(target, mask)
		for rest := mask; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			if b[l] == 0 {
				return w.fault(1<<l, "divides by 0")
			}
			out[l] = a[l] / b[l]
		}
		return nil
	}, nil
}

// constant is the value of a source that is the same number in all threads.
func (s source) constant() (uint64, bool) {
	if s.value == nil {
		return 0, false
	}
	return s.value[0], true
}

// permute is prmt.b32: it picks four bytes out of eight; bit 3 of a selector repeats the byte's sign.
func permute(e *entry, text []string) (func(*warp, uint32) error, error) {
	_, sources, err := e.operands(text, word, []regKind{word, word, word})
	if err != nil {
		return nil, err
	}
	f := each(permuted)
	if s, ok := sources[2].constant(); ok && s&0x8888 == 0 {
		var from [4]uint64 // bits, of each byte
		for i := range from {
			from[i] = 8 * (s >> (4 * i) & 7)
		}
		f = func(out *lanes, in [4]*lanes) {
			for l := range out {
				all := in[1][l]<<32 | in[0][l]
				out[l] = all>>(from[0]&63)&255 | all>>(from[1]&63)&255<<8 |
					all>>(from[2]&63)&255<<16 | all>>(from[3]&63)&255<<24
			}
		}
	}
	return compute(word, []regKind{word, word, word}, f)(e, text)
}

func permuted(v [4]uint64) uint64 {
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

// lookup is lop3.b32: any function of three bits, bit by bit. Those of SHA-256 are tables of their own.
func lookup(e *entry, text []string) (func(*warp, uint32) error, error) {
	kinds := []regKind{word, word, word, word}
	_, sources, err := e.operands(text, word, kinds)
	if err != nil {
		return nil, err
	}
	f := each(lookedUp)
	table, _ := sources[3].constant()
	switch table {
	case 0x96:
		f = func(out *lanes, in [4]*lanes) {
			a, b, c := in[0], in[1], in[2]
			for l := range out {
				out[l] = a[l] ^ b[l] ^ c[l]
			}
		}
	case 0xca:
		f = func(out *lanes, in [4]*lanes) {
			a, b, c := in[0], in[1], in[2]
			for l := range out {
				out[l] = a[l]&b[l] | c[l]&^a[l]
			}
		}
	case 0xe8:
		f = func(out *lanes, in [4]*lanes) {
			a, b, c := in[0], in[1], in[2]
			for l := range out {
				out[l] = a[l]&b[l] | (a[l]|b[l])&c[l]
			}
		}
	}
	return compute(word, kinds, f)(e, text)
}

// lookedUp takes entry a·4 + b·2 + c of the table for each bit.
func lookedUp(v [4]uint64) uint64 {
	var out uint64
	for i := range uint64(8) {
		if v[3]>>i&1 == 0 {
			continue
		}
		// A bit of i that is 0 takes the variable's complement.
		out |= (v[0] ^ (i>>2&1 - 1)) & (v[1] ^ (i>>1&1 - 1)) & (v[2] ^ (i&1 - 1))
	}
	return out & low
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
			lo[l], hi[l] = v[l]&low, v[l]>>32
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
		compared := func(out *lanes, in [4]*lanes) {
			for l := range out {
				out[l] = truth(f(in[0][l], in[1][l]))
			}
		}
		opcodes["setp."+name+".u32"] = compute(predicate, []regKind{word, word}, compared)
		opcodes["setp."+name+".u64"] = compute(predicate, []regKind{double, double}, compared)
	}
}
