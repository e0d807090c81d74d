package ptx

// place sets row and column to the block of C that is this block's. Blocks that run at the same time should share lines
// of A and B in the cache, so they go down eight rows before they go to the next column.
func (k *kernel) place() {
	const together = 8
	k.reg("u32", "id", "width", "group", "rest", "size", "row", "column")
	k.p("mov.u32 id, %%ctaid.x;")
	k.p("mul.lo.u32 width, columns, %d;", together)
	k.p("div.u32 group, id, width;")
	k.p("mul.lo.u32 rest, group, width;")
	k.p("sub.u32 rest, id, rest;")
	k.p("mul.lo.u32 row, group, %d;", together)
	k.p("sub.u32 size, rows, row;")
	k.p("min.u32 size, size, %d;", together)
	k.p("div.u32 column, rest, size;")
	k.p("mul.lo.u32 id, column, size;")
	k.p("sub.u32 rest, rest, id;")
	k.p("add.u32 row, row, rest;")
	k.p("shl.b32 row, row, 7;")
	k.p("shl.b32 column, column, 7;")
}

// address sets at to base + (first + line)·depth + offset: a place in a line of A or B.
func (k *kernel) address(at, base, first, line, offset string) {
	k.p("add.u32 x, %s, %s;", first, line)
	k.p("mul.wide.u32 %s, x, depth;", at)
	k.p("add.u64 %s, %s, %s;", at, at, base)
	k.p("cvt.u64.u32 wide, %s;", offset)
	k.p("add.u64 %s, %s, wide;", at, at)
}

// output sets c to the address of the entry at x, y of C, and wide to the byte distance of rows rows.
func (k *kernel) output(rows int) {
	k.p("shl.b32 width, columns, 7;")
	k.p("mul.wide.u32 at, x, width;")
	k.p("cvt.u64.u32 wide, y;")
	k.p("add.u64 at, at, wide;")
	k.p("shl.b64 at, at, 2;")
	k.p("add.u64 c, c, at;")
	k.p("mul.wide.u32 wide, width, %d;", 4*rows)
}

// dp4a multiplies with dp4a, four products of int8 at a time. A thread makes 8 × 8 entries: rows and columns 4·ty and
// 4·tx on, and the same 64 further. 32 bytes of each line lie in shared memory at a time, by words of four: word w of
// line r at 4·(128·w + r); while one buffer is multiplied the next 32 bytes are on their way to the other.
func dp4a() string {
	const buffer, word = 4096, 512
	k := begin(Gemm, 2)
	k.params()
	k.shared("sh", 16, 4*buffer) // two of A, two of B
	k.reg("u32", "t", "tx", "ty", "x", "y", "line", "half", "left", "put", "geta", "getb", "flip")
	k.reg("u64", "at", "wide", "froma", "fromb")
	k.reg("s32", names("s", 64)...)
	k.reg("u32", names("fa", 8)...)
	k.reg("u32", names("fb", 8)...)
	k.reg("u32", names("na", 4)...)
	k.reg("u32", names("nb", 4)...)
	k.reg("pred", "more")
	k.place()
	k.p("mov.u32 t, %%tid.x;")
	k.p("and.b32 tx, t, 15;")
	k.p("shr.u32 ty, t, 4;")
	k.p("shr.u32 line, t, 1;")
	k.p("and.b32 half, t, 1;")
	k.p("shl.b32 y, half, 4;")
	k.address("froma", "a", "row", "line", "y")
	k.address("fromb", "b", "column", "line", "y")
	k.p("mov.u32 y, sh;")
	k.p("mad.lo.u32 put, half, %d, y;", 4*word)
	k.p("mad.lo.u32 put, line, 4, put;")
	k.p("mad.lo.u32 geta, ty, 16, y;")
	k.p("mad.lo.u32 getb, tx, 16, y;")
	k.p("add.u32 getb, getb, %d;", 2*buffer)
	for i := range 64 {
		k.p("mov.s32 s%d, 0;", i)
	}
	next := func(guard string) {
		k.p("%sld.global.nc.v4.u32 {na0, na1, na2, na3}, [froma];", guard)
		k.p("%sld.global.nc.v4.u32 {nb0, nb1, nb2, nb3}, [fromb];", guard)
	}
	store := func(guard string) {
		for i := range 4 {
			k.p("%sst.shared.u32 [put+%d], na%d;", guard, i*word, i)
			k.p("%sst.shared.u32 [put+%d], nb%d;", guard, i*word+2*buffer, i)
		}
	}
	next("")
	store("")
	k.p("bar.sync 0;")
	k.p("mov.u32 flip, %d;", buffer) // from the buffer that is multiplied to the other
	k.p("shr.u32 left, depth, 5;")
	k.label("LOOP")
	k.p("setp.gt.u32 more, left, 1;")
	k.p("add.u64 froma, froma, 32;")
	k.p("add.u64 fromb, fromb, 32;")
	next("@more ")
	products8(k, word)
	k.p("add.u32 put, put, flip;")
	store("@more ")
	k.p("add.u32 geta, geta, flip;")
	k.p("add.u32 getb, getb, flip;")
	k.p("sub.u32 flip, 0, flip;")
	k.p("bar.sync 0;")
	k.p("sub.u32 left, left, 1;")
	k.p("@more bra LOOP;")
	store8(k)
	return k.text()
}

// products8 adds to s the products of 8 lines of A and 8 of B, of the 32 bytes of each that are in shared memory.
func products8(k *kernel, word int) {
	for w := range 8 {
		for h := range 2 {
			k.p("ld.shared.v4.u32 %s, [geta+%d];", vector(names("fa", 8)[4*h:4*h+4]...), w*word+h*256)
			k.p("ld.shared.v4.u32 %s, [getb+%d];", vector(names("fb", 8)[4*h:4*h+4]...), w*word+h*256)
		}
		for i := range 8 {
			for j := range 8 {
				k.p("dp4a.s32.s32 s%d, fa%d, fb%d, s%d;", 8*i+j, i, j, 8*i+j)
			}
		}
	}
}

// store8 stores s, the thread's 8 × 8 entries of C.
func store8(k *kernel) {
	k.p("mad.lo.u32 x, ty, 4, row;")
	k.p("mad.lo.u32 y, tx, 4, column;")
	k.output(1)
	k.p("mul.wide.u32 at, width, %d;", 4*61) // from row 3 to row 64
	for i := range 8 {
		k.p("st.global.v4.s32 [c], %s;", vector(names("s", 64)[8*i:8*i+4]...))
		k.p("st.global.v4.s32 [c+256], %s;", vector(names("s", 64)[8*i+4:8*i+8]...))
		switch i {
		case 3:
			k.p("add.u64 c, c, at;")
		case 7:
		default:
			k.p("add.u64 c, c, wide;")
		}
	}
}

// Of mma: a stage is 64 bytes of 128 lines of A and of B.
const (
	stageHalf = 64 * BlockSide
	stage     = 2 * stageHalf
	stages    = 3 // 48 KiB: all that a block has without asking, and two blocks fit every multiprocessor from 8.0 on
)

// mma multiplies with mma.m16n8k32. Eight warps, two down and four across, make 64 × 32 entries each. Three stages
// rotate: one is multiplied while two are being loaded by cp.async. A stage is refilled after the barrier that all
// threads pass when they have finished with it.
//
// A line's 64 bytes in a stage are four pieces of 16. Piece p of line r is at place p ⊕ (r/2 mod 4), so the eight lines
// that ldmatrix reads at a time, and those that cp.async writes, are in different banks.
func mma() string {
	k := begin(Gemm, 2)
	k.params()
	k.shared("sh", 128, stages*stage)
	k.reg("u32", "t", "lane", "down", "right", "x", "y", "line", "piece", "left", "store", "put", "get", "base")
	k.reg("u32", "geta0", "geta1", "getb0", "getb1")
	k.reg("u64", "at", "wide", "froma", "fromb", "froma64", "fromb64")
	k.reg("s32", names("s", 64)...)
	k.reg("u32", names("fa", 16)...)
	k.reg("u32", names("fb", 8)...)
	k.reg("pred", "more", "wrap")
	k.place()
	k.p("mov.u32 t, %%tid.x;")
	k.p("mov.u32 base, sh;")
	// This thread copies one piece of a line, and the same of the line 64 further.
	k.p("shr.u32 line, t, 2;")
	k.p("and.b32 piece, t, 3;")
	k.p("shl.b32 y, piece, 4;")
	k.address("froma", "a", "row", "line", "y")
	k.address("fromb", "b", "column", "line", "y")
	k.p("mul.wide.u32 wide, depth, 64;")
	k.p("add.u64 froma64, froma, wide;")
	k.p("add.u64 fromb64, fromb, wide;")
	k.swizzle("store", "line", "piece", 0)
	k.fragments()
	for i := range 64 {
		k.p("mov.s32 s%d, 0;", i)
	}
	// store and get0 … are places in a stage; put and get are where the stage begins.
	k.p("add.u32 put, base, store;")
	k.p("shr.u32 left, depth, 6;")
	k.copy("")
	k.p("setp.gt.u32 more, left, 1;")
	k.p("add.u32 put, put, %d;", stage)
	k.copy("@more ")
	k.p("add.u32 put, put, %d;", stage)
	k.p("mov.u32 get, base;")
	k.label("LOOP")
	k.p("cp.async.wait_group 1;")
	k.p("bar.sync 0;")
	k.p("setp.gt.u32 more, left, 2;")
	k.copy("@more ")
	k.advance("put", "store")
	for half := range 2 {
		k.multiply(half)
	}
	k.advance("get", "")
	k.p("sub.u32 left, left, 1;")
	k.p("setp.gt.u32 more, left, 0;")
	k.p("@more bra LOOP;")
	k.result()
	return k.text()
}

// swizzle sets out to where in half a stage piece + 2·half of a line lies.
func (k *kernel) swizzle(out, line, piece string, half int) {
	k.p("shr.u32 x, %s, 1;", line)
	k.p("and.b32 x, x, 3;")
	k.p("add.u32 y, %s, %d;", piece, 2*half)
	k.p("xor.b32 x, x, y;")
	k.p("shl.b32 x, x, 4;")
	k.p("mad.lo.u32 %s, %s, 64, x;", out, line)
}

// fragments sets geta and getb, for both halves of a stage's depth, to this lane's addresses for ldmatrix. Its four
// matrices of 8 lines by 16 bytes are, of A, two down and then two to the right; of B, two to the right and then two
// down, which gives both registers of two neighbouring fragments.
func (k *kernel) fragments() {
	k.p("and.b32 lane, t, 31;")
	k.p("shr.u32 x, t, 5;")
	k.p("and.b32 down, x, 1;")
	k.p("shr.u32 right, x, 1;")
	k.p("and.b32 line, lane, 15;")
	k.p("mad.lo.u32 line, down, 64, line;")
	k.p("shr.u32 piece, lane, 4;")
	k.swizzle("geta0", "line", "piece", 0)
	k.swizzle("geta1", "line", "piece", 1)
	k.p("shr.u32 x, lane, 4;")
	k.p("shl.b32 x, x, 3;")
	k.p("and.b32 line, lane, 7;")
	k.p("add.u32 line, line, x;")
	k.p("mad.lo.u32 line, right, 32, line;")
	k.p("shr.u32 piece, lane, 3;")
	k.p("and.b32 piece, piece, 1;")
	k.swizzle("getb0", "line", "piece", 0)
	k.swizzle("getb1", "line", "piece", 1)
	k.p("add.u32 getb0, getb0, %d;", stageHalf)
	k.p("add.u32 getb1, getb1, %d;", stageHalf)
}

// copy sends the next 64 bytes of the lines to the stage at put; the group is empty where there are none. The place of
// line r + 64 is 4096 further, for 64/2 mod 4 is 0.
func (k *kernel) copy(guard string) {
	for i, from := range []string{"froma", "froma64", "fromb", "fromb64"} {
		k.p("%scp.async.cg.shared.global [put+%d], [%s], 16;", guard, i*64*64, from)
		k.p("add.u64 %s, %s, 64;", from, from)
	}
	k.p("cp.async.commit_group;")
}

// advance moves a pointer to the next stage, from the last to the first. in is its place in the stage.
func (k *kernel) advance(pointer, in string) {
	k.p("add.u32 %s, %s, %d;", pointer, pointer, stage)
	k.p("sub.u32 x, %s, base;", pointer)
	k.p("setp.ge.u32 wrap, x, %d;", stages*stage)
	if in == "" {
		in = "0"
	}
	k.p("add.u32 x, base, %s;", in)
	k.p("selp.b32 %s, x, %s, wrap;", pointer, pointer)
}

// multiply adds the products of half a stage, 32 bytes of each line.
func (k *kernel) multiply(half int) {
	k.p("add.u32 x, get, geta%d;", half)
	k.p("add.u32 y, get, getb%d;", half)
	const sixteen = 16 * 64 // bytes of 16 lines, over which the swizzle is the same
	for i := range 4 {
		k.p("ldmatrix.sync.aligned.m8n8.x4.shared.b16 %s, [x+%d];", vector(names("fa", 16)[4*i:4*i+4]...), i*sixteen)
	}
	for j := range 2 {
		k.p("ldmatrix.sync.aligned.m8n8.x4.shared.b16 %s, [y+%d];", vector(names("fb", 8)[4*j:4*j+4]...), j*sixteen)
	}
	for i := range 4 {
		for j := range 4 {
			s := vector(names("s", 64)[4*(4*i+j) : 4*(4*i+j)+4]...)
			k.p("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 %s, %s, %s, %s;",
				s, vector(names("fa", 16)[4*i:4*i+4]...), vector(names("fb", 8)[2*j:2*j+2]...), s)
		}
	}
}

// result writes the entries: lane l has two beside each other in row l/4 of each 16 × 8, and two in the row 8 below.
func (k *kernel) result() {
	k.p("shr.u32 x, lane, 2;")
	k.p("mad.lo.u32 x, down, 64, x;")
	k.p("add.u32 x, x, row;")
	k.p("and.b32 y, lane, 3;")
	k.p("shl.b32 y, y, 1;")
	k.p("mad.lo.u32 y, right, 32, y;")
	k.p("add.u32 y, y, column;")
	k.output(8)
	for i := range 4 {
		for below := range 2 {
			for j := range 4 {
				s := 4*(4*i+j) + 2*below
				k.p("st.global.v2.s32 [c+%d], {s%d, s%d};", 32*j, s, s+1)
			}
			if i < 3 || below == 0 {
				k.p("add.u64 c, c, wide;")
			}
		}
	}
}
