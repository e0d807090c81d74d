package ptx

import "fmt"

// constants are ChaCha's, "expand 32-byte k".
var constants = [4]uint32{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}

// chacha writes the eight rounds on x0 … x15 and adds their start values: the constants, key k0 … k7 and place q12 …
// q15. Only the first `words` words are finished.
func (k *kernel) chacha(words int) {
	start := func(i int) string {
		switch {
		case i < 4:
			return fmt.Sprintf("0x%08x", constants[i])
		case i < 12:
			return fmt.Sprintf("k%d", i-4)
		}
		return fmt.Sprintf("q%d", i)
	}
	for i := range 16 {
		k.p("mov.u32 x%d, %s;", i, start(i))
	}
	for range 4 {
		for i := range 4 {
			k.quarter(i, i+4, i+8, i+12)
		}
		for i := range 4 {
			k.quarter(i, 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4)
		}
	}
	for i := range words {
		k.p("add.u32 x%d, x%d, %s;", i, i, start(i))
	}
}

// quarter is one quarter round. Turns by whole bytes are permutations of bytes.
func (k *kernel) quarter(a, b, c, d int) {
	k.p("add.u32 x%d, x%d, x%d;", a, a, b)
	k.p("xor.b32 x%d, x%d, x%d;", d, d, a)
	k.p("prmt.b32 x%d, x%d, x%d, 0x1032;", d, d, d)
	k.p("add.u32 x%d, x%d, x%d;", c, c, d)
	k.p("xor.b32 x%d, x%d, x%d;", b, b, c)
	k.p("shf.l.wrap.b32 x%d, x%d, x%d, 12;", b, b, b)
	k.p("add.u32 x%d, x%d, x%d;", a, a, b)
	k.p("xor.b32 x%d, x%d, x%d;", d, d, a)
	k.p("prmt.b32 x%d, x%d, x%d, 0x2103;", d, d, d)
	k.p("add.u32 x%d, x%d, x%d;", c, c, d)
	k.p("xor.b32 x%d, x%d, x%d;", b, b, c)
	k.p("shf.l.wrap.b32 x%d, x%d, x%d, 7;", b, b, b)
}

// rows writes lines of A or B. Block number i of all lines lies at 64·i, for lines have no gaps.
func rows() string {
	k := begin(Rows, 2)
	k.params()
	k.thread("i", "total")
	k.reg("u32", names("x", 16)...)
	k.reg("u32", "q12", "q13", "q14", "q15")
	k.reg("u64", "at")
	k.p("div.u32 q15, i, blocks;")
	k.p("mul.lo.u32 q12, q15, blocks;")
	k.p("sub.u32 q12, i, q12;")
	k.p("mov.u32 q13, 0;")
	k.p("mov.u32 q14, word14;")
	k.p("add.u32 q15, q15, first;")
	k.chacha(16)
	k.p("mad.wide.u32 at, i, 64, out;")
	for i := 0; i < 16; i += 4 {
		k.p("st.global.v4.u32 [at+%d], %s;", 4*i, vector(names("x", 16)[i:i+4]...))
	}
	return k.text()
}

// fill writes cells. The key and place of a block are words of the block before.
func fill() string {
	k := begin(Fill, 2)
	k.params()
	k.thread("i", "count")
	k.reg("u32", names("x", 16)...)
	k.reg("u32", "q12", "q13", "q14", "q15")
	k.reg("u64", "j", "at")
	k.reg("pred", "last")
	k.p("cvt.u64.u32 j, i;")
	k.p("add.u64 j, j, first;")
	k.p("mov.b64 {q12, q13}, j;")
	k.p("mov.u32 q14, 0;")
	k.p("mov.u32 q15, 0;")
	k.label("BLOCK")
	k.chacha(12)
	k.p("sub.u32 work, work, 1;")
	k.p("setp.eq.u32 last, work, 0;")
	k.p("@last bra DONE;")
	for i := range 8 {
		k.p("mov.u32 k%d, x%d;", i, i)
	}
	k.p("mov.u32 q12, x10;")
	k.p("mov.u32 q13, x11;")
	k.p("mov.u32 q14, x8;")
	k.p("mov.u32 q15, x9;")
	k.p("bra BLOCK;")
	k.label("DONE")
	k.p("shl.b64 at, j, 5;")
	k.p("add.u64 at, at, out;")
	k.p("st.global.v4.u32 [at], {x0, x1, x2, x3};")
	k.p("st.global.v4.u32 [at+16], {x4, x5, x6, x7};")
	return k.text()
}

// walk walks. A cell is read as two halves, one sector together.
func walk() string {
	k := begin(Walk, 8)
	k.params()
	k.thread("i", "count")
	k.reg("u32", "n")
	k.reg("u64", "s", "t", "at", "end", "c0", "c1", "c2", "c3")
	k.reg("pred", "go", "more")
	k.p("mad.wide.u32 end, i, 8, ends;")
	k.p("setp.eq.u32 go, begin, 0;")
	k.p("@go ld.global.u64 s, [end];")
	k.p("@go bra READY;")
	k.p("add.u32 n, first, i;")
	k.p("cvt.u64.u32 s, n;")
	k.p("mul.lo.u64 s, s, 0x9e3779b97f4a7c15;")
	k.p("xor.b64 s, s, key;")
	for i := range 4 {
		k.p("mov.u64 c%d, %d;", i, i+1)
	}
	k.mix()
	k.label("READY")
	k.p("mov.u32 n, 0;")
	k.label("STEP")
	k.p("mul.hi.u64 at, s, cells;")
	k.p("shl.b64 at, at, 5;")
	k.p("add.u64 at, at, data;")
	k.p("ld.global.nc.v2.u64 {c0, c1}, [at];")
	k.p("ld.global.nc.v2.u64 {c2, c3}, [at+16];")
	k.mix()
	k.p("add.u32 n, n, 1;")
	k.p("setp.lt.u32 more, n, steps;")
	k.p("@more bra STEP;")
	k.p("st.global.u64 [end], s;")
	return k.text()
}

// mix is challenge.Mix of s and c0 … c3.
func (k *kernel) mix() {
	k.p("xor.b64 s, s, c0;")
	k.p("mul.lo.u64 s, s, 0x9e3779b97f4a7c15;")
	for i, by := range []struct {
		shift  int
		factor uint64
	}{{29, 0xbf58476d1ce4e5b9}, {32, 0x94d049bb133111eb}} {
		k.p("shr.u64 t, s, %d;", by.shift)
		k.p("xor.b64 s, s, t;")
		k.p("xor.b64 s, s, c%d;", i+1)
		k.p("mul.lo.u64 s, s, 0x%016x;", by.factor)
	}
	k.p("shr.u64 t, s, 31;")
	k.p("xor.b64 s, s, t;")
	k.p("xor.b64 s, s, c3;")
}
