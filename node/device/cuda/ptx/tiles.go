package ptx

import "fmt"

// sha is the round constants of SHA-256 (FIPS 180-4 §4.2.2).
var sha = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

// initial is SHA-256's state before any data (§5.3.3).
var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// Lengths in bits of the hashes' inputs: a prefix byte and a leaf's 128 bytes, or two hashes.
const (
	leafBits  = 8 * (1 + 128)
	nodeBits  = 8 * (1 + 64)
	groupBits = 8 * (1 + 512)
)

// Hashes of a block lie in shared memory by words: word j of hash s at 4·(512·j + s). So the threads of a warp, which
// have hashes beside each other, write without bank conflicts.
const (
	hashes   = BlockTiles * 128
	wordStep = 4 * hashes
)

// tiles hashes the leaves of four tiles, one tile after the other, and then the levels above for all four together, so
// that fewer threads stand idle near the top. A node is put where its left child was: no other thread reads or writes
// that place, and one barrier for each level is enough. Tiles beyond count are the last one again, and are not written.
func tiles() string {
	k := begin(Tiles, 4)
	k.params()
	k.shared("sh", 16, 8*wordStep)
	k.reg("u32", "t", "block", "tile", "slot", "base", "n", "i", "step", "x", "y")
	k.hashing()
	k.reg("u64", "at")
	k.reg("pred", "pad", "more", "idle", "beyond")
	k.p("mov.u32 t, %%tid.x;")
	k.p("mov.u32 block, %%ctaid.x;")
	k.p("mov.u32 base, sh;")
	k.leaves()
	k.levels()
	// Threads 0 to 3 each have the top of a tile in h0 … h7.
	k.p("setp.ge.u32 idle, t, %d;", BlockTiles)
	k.p("@idle ret;")
	k.p("mad.lo.u32 tile, block, %d, t;", BlockTiles)
	k.p("setp.ge.u32 beyond, tile, count;")
	k.p("@beyond ret;")
	k.p("mad.wide.u32 at, tile, 32, out;")
	k.store()
	return k.text()
}

// leaves hashes leaf t of each tile. Word k of the data is, after the prefix byte 0, the last byte of little-endian
// int32 number k−1 and the first three of number k.
func (k *kernel) leaves() {
	k.p("mov.u32 n, 0;")
	k.label("LEAF")
	k.p("mad.lo.u32 tile, block, %d, n;", BlockTiles)
	k.p("sub.u32 x, count, 1;")
	k.p("min.u32 tile, tile, x;")
	k.p("div.u32 x, tile, across;") // row of tiles
	k.p("mul.lo.u32 y, x, across;")
	k.p("sub.u32 y, tile, y;") // column of tiles
	k.p("shl.b32 x, x, 6;")
	k.p("shr.u32 i, t, 1;")
	k.p("add.u32 x, x, i;") // row of C
	k.p("shl.b32 y, y, 6;")
	k.p("and.b32 i, t, 1;")
	k.p("shl.b32 i, i, 5;")
	k.p("add.u32 y, y, i;") // column of C
	k.p("mad.lo.u32 x, x, pitch, y;")
	k.p("mad.wide.u32 at, x, 4, c;")
	k.leaf(2, leafBits)
	k.p("mad.lo.u32 slot, n, 128, t;")
	k.put()
	k.p("add.u32 n, n, 1;")
	k.p("setp.lt.u32 more, n, %d;", BlockTiles)
	k.p("@more bra LEAF;")
}

// leaf hashes a leaf of the given number of 64-byte pieces, starting at at, into h0 … h7.
func (k *kernel) leaf(pieces, bits int) {
	k.initial()
	k.p("mov.u32 before, 0;")
	k.p("mov.u32 part, 0;")
	k.label("LEAFPART")
	k.p("setp.eq.u32 pad, part, %d;", pieces)
	k.p("@pad bra LEAFPAD;")
	for i := 0; i < 16; i += 4 {
		k.p("ld.global.v4.u32 %s, [at+%d];", vector(names("d", 16)[i:i+4]...), 4*i)
	}
	k.p("add.u64 at, at, 64;")
	k.p("prmt.b32 w0, before, d0, 0x3456;")
	for i := 1; i < 16; i++ {
		k.p("prmt.b32 w%d, d%d, d%d, 0x3456;", i, i-1, i)
	}
	k.p("mov.u32 before, d15;")
	k.p("bra LEAFGO;")
	k.label("LEAFPAD")
	k.p("prmt.b32 w0, before, 0x80, 0x3456;")
	k.zeros(bits)
	k.label("LEAFGO")
	k.compress()
	k.p("add.u32 part, part, 1;")
	k.p("setp.lt.u32 more, part, %d;", pieces+1)
	k.p("@more bra LEAFPART;")
}

// groups hashes the ends of 64 walkers in a thread: a leaf of 512 bytes.
func groups() string {
	k := begin(Groups, 2)
	k.params()
	k.thread("i", "count")
	k.hashing()
	k.reg("u64", "at")
	k.reg("pred", "pad", "more")
	k.p("mad.wide.u32 at, i, 512, ends;")
	k.leaf(8, groupBits)
	k.p("mad.wide.u32 at, i, 32, out;")
	k.store()
	return k.text()
}

// hashing declares the registers of compress and leaf.
func (k *kernel) hashing() {
	k.reg("u32", names("h", 8)...)
	k.reg("u32", names("v", 8)...)
	k.reg("u32", names("w", 16)...)
	k.reg("u32", names("d", 16)...)
	k.reg("u32", "before", "part", "e0", "e1", "e2", "e3")
}

// store writes h0 … h7 to at. Bytes of a hash are big-endian.
func (k *kernel) store() {
	for i := range 8 {
		k.p("prmt.b32 h%d, h%d, h%d, 0x0123;", i, i, i)
	}
	k.p("st.global.v4.u32 [at], {h0, h1, h2, h3};")
	k.p("st.global.v4.u32 [at+16], {h4, h5, h6, h7};")
}

// levels hashes 512 leaves' hashes up to four.
func (k *kernel) levels() {
	k.p("mov.u32 n, %d;", hashes/2) // nodes of the level
	k.p("mov.u32 step, 1;")         // from a left child to its right neighbour
	k.label("LEVEL")
	k.p("bar.sync 0;")
	k.p("mov.u32 i, t;")
	k.label("NODE")
	k.p("setp.ge.u32 idle, i, n;")
	k.p("@idle bra LEVELUP;")
	k.p("mul.lo.u32 slot, i, step;")
	k.p("shl.b32 slot, slot, 1;")
	k.get(0)
	k.p("add.u32 slot, slot, step;")
	k.get(8)
	k.p("sub.u32 slot, slot, step;")
	// Word j of the data is, after the prefix byte 1, the last byte of word j−1 of the hashes and the first three of
	// word j.
	k.initial()
	k.p("shf.r.wrap.b32 w0, d0, 1, 8;")
	for j := 1; j < 16; j++ {
		k.p("shf.r.wrap.b32 w%d, d%d, d%d, 8;", j, j, j-1)
	}
	k.p("shl.b32 before, d15, 24;")
	k.p("or.b32 before, before, 0x800000;")
	k.p("mov.u32 part, 0;")
	k.label("NODEPART")
	k.compress()
	k.p("setp.eq.u32 pad, part, 1;")
	k.p("@pad bra NODEDONE;")
	k.p("mov.u32 part, 1;")
	k.p("mov.u32 w0, before;")
	k.zeros(nodeBits)
	k.p("bra NODEPART;")
	k.label("NODEDONE")
	k.put()
	k.p("add.u32 i, i, %d;", k.spec.Threads)
	k.p("bra NODE;")
	k.label("LEVELUP")
	k.p("shl.b32 step, step, 1;")
	k.p("shr.u32 n, n, 1;")
	k.p("setp.ge.u32 more, n, %d;", BlockTiles)
	k.p("@more bra LEVEL;")
}

// zeros ends the padding: words 1 to 14 are 0, the last is the length.
func (k *kernel) zeros(bits int) {
	for i := 1; i < 15; i++ {
		k.p("mov.u32 w%d, 0;", i)
	}
	k.p("mov.u32 w15, %d;", bits)
}

func (k *kernel) initial() {
	for i, v := range initial {
		k.p("mov.u32 h%d, 0x%08x;", i, v)
	}
}

// put writes h0 … h7 to slot.
func (k *kernel) put() {
	k.p("mad.lo.u32 x, slot, 4, base;")
	for i := range 8 {
		k.p("st.shared.u32 [x+%d], h%d;", i*wordStep, i)
	}
}

// get reads slot into eight of d0 … d15.
func (k *kernel) get(to int) {
	k.p("mad.lo.u32 x, slot, 4, base;")
	for i := range 8 {
		k.p("ld.shared.u32 d%d, [x+%d];", to+i, i*wordStep)
	}
}

// compress is SHA-256's compression (§6.2.2) of w0 … w15 into h0 … h7. The roles of v0 … v7 turn with the rounds.
func (k *kernel) compress() {
	for i := range 8 {
		k.p("mov.u32 v%d, h%d;", i, i)
	}
	for r := range 64 {
		v := func(i int) string { return fmt.Sprintf("v%d", (i+64-r)%8) }
		w := func(i int) string { return fmt.Sprintf("w%d", (r+i)%16) }
		if r >= 16 {
			k.turn("e0", w(1), 7, 18, 3, true)
			k.turn("e1", w(14), 17, 19, 10, true)
			k.p("add.u32 %s, %s, %s;", w(0), w(0), w(9))
			k.p("add.u32 e0, e0, e1;")
			k.p("add.u32 %s, %s, e0;", w(0), w(0))
		}
		k.turn("e0", v(4), 6, 11, 25, false)
		k.p("lop3.b32 e1, %s, %s, %s, 0xca;", v(4), v(5), v(6)) // choose
		k.p("add.u32 e2, %s, 0x%08x;", w(0), sha[r])
		k.p("add.u32 e2, e2, %s;", v(7))
		k.p("add.u32 e0, e0, e1;")
		k.p("add.u32 %s, e0, e2;", v(7))
		k.p("add.u32 %s, %s, %s;", v(3), v(3), v(7))
		k.turn("e0", v(0), 2, 13, 22, false)
		k.p("lop3.b32 e1, %s, %s, %s, 0xe8;", v(0), v(1), v(2)) // majority
		k.p("add.u32 e0, e0, e1;")
		k.p("add.u32 %s, %s, e0;", v(7), v(7))
	}
	for i := range 8 {
		k.p("add.u32 h%d, h%d, v%d;", i, i, i)
	}
}

// turn is the exclusive or of a word turned right by a and by b, and turned, or shifted, right by c. It uses e2 and e3.
func (k *kernel) turn(out, word string, a, b, c int, shift bool) {
	k.p("shf.r.wrap.b32 %s, %s, %s, %d;", out, word, word, a)
	k.p("shf.r.wrap.b32 e2, %s, %s, %d;", word, word, b)
	if shift {
		k.p("shr.u32 e3, %s, %d;", word, c)
	} else {
		k.p("shf.r.wrap.b32 e3, %s, %s, %d;", word, word, c)
	}
	k.p("lop3.b32 %s, %s, e2, e3, 0x96;", out, out)
}
