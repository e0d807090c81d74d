package ptxsim

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
	"testing"
)

// through writes 16 bytes for each of 64 threads, which they have in r2 to r5, executes a body, and returns r2 to r5 of
// each thread. d1 is r3:r2 and d2 is r5:r4, before and after.
func through(t *testing.T, in [64][4]uint32, body string) (out [64][4]uint32) {
	t.Helper()
	m, err := Parse(text(`ld.global.v4.u32 {r2, r3, r4, r5}, [d0]; ld.global.u64 d1, [d0]; ld.global.u64 d2, [d0+8]; ` +
		body + ` st.global.v4.u32 [d0+1024], {r2, r3, r4, r5};`))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	g := New(1 << 20)
	at, err := g.Alloc(2048)
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for _, words := range in {
		for _, w := range words {
			raw = binary.LittleEndian.AppendUint32(raw, w)
		}
	}
	if err := g.Write(at, raw); err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(m, "t", 1, 64, []uint64{at, 7}); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := g.Read(raw, at+1024); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		for k := range out[i] {
			out[i][k] = binary.LittleEndian.Uint32(raw[16*i+4*k:])
		}
	}
	return out
}

// edges are values at which 32-bit arithmetic wraps, and counts around the sizes of registers.
var edges = [8]uint32{0, 1, 31, 32, 0x7fff_ffff, 0x8000_0000, 0xff80_017f, 0xffff_ffff}

// edgePairs are all pairs of edges, one for each thread. The other two words are edges as well.
func edgePairs() (in [64][4]uint32) {
	for i := range in {
		in[i] = [4]uint32{edges[i%8], edges[i/8], edges[(i+i/8)%8], edges[(3*i+1)%8]}
	}
	return in
}

func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// references32 are instructions that leave a result in r2, and their meaning by the ISA for r2, r3 and r4.
var references32 = map[string]func(a, b, c uint32) uint32{
	"add.u32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a + b },
	"sub.u32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a - b },
	"xor.b32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a ^ b },
	"and.b32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a & b },
	"or.b32 r2, r2, r3;":                    func(a, b, _ uint32) uint32 { return a | b },
	"min.u32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return min(a, b) },
	"mul.lo.u32 r2, r2, r3;":                func(a, b, _ uint32) uint32 { return a * b },
	"mad.lo.u32 r2, r2, r3, r4;":            func(a, b, c uint32) uint32 { return a*b + c },
	"shl.b32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a << b },
	"shr.u32 r2, r2, r3;":                   func(a, b, _ uint32) uint32 { return a >> b },
	"shf.l.wrap.b32 r2, r2, r2, r3;":        func(a, b, _ uint32) uint32 { return bits.RotateLeft32(a, int(b%32)) },
	"shf.r.wrap.b32 r2, r2, r2, r3;":        func(a, b, _ uint32) uint32 { return bits.RotateLeft32(a, -int(b%32)) },
	"mov.u32 r2, r3;":                       func(_, b, _ uint32) uint32 { return b },
	"mov.s32 r2, r3;":                       func(_, b, _ uint32) uint32 { return b },
	"prmt.b32 r2, r2, r3, 0x5410;":          func(a, b, _ uint32) uint32 { return a&0xffff | b<<16 },
	"lop3.b32 r2, r2, r3, r4, 0x96;":        func(a, b, c uint32) uint32 { return a ^ b ^ c },
	"lop3.b32 r2, r2, r3, r4, 0x1e;":        func(a, b, c uint32) uint32 { return a ^ (b | c) },
	"or.b32 r3, r3, 1; div.u32 r2, r2, r3;": func(a, b, _ uint32) uint32 { return a / (b | 1) },
	"dp4a.s32.s32 r2, r2, r3, r4;": func(a, b, c uint32) uint32 {
		sum := int64(int32(c))
		for i := range 4 {
			sum += int64(int8(a>>(8*i))) * int64(int8(b>>(8*i)))
		}
		return uint32(sum) // without .sat, the sum wraps
	},
	"setp.eq.u32 p, r2, r3; selp.b32 r2, 1, 0, p;": func(a, b, _ uint32) uint32 { return truth(a == b) },
	"setp.ne.u32 p, r2, r3; selp.b32 r2, 1, 0, p;": func(a, b, _ uint32) uint32 { return truth(a != b) },
	"setp.lt.u32 p, r2, r3; selp.b32 r2, 1, 0, p;": func(a, b, _ uint32) uint32 { return truth(a < b) },
	"setp.le.u32 p, r2, r3; selp.b32 r2, 1, 0, p;": func(a, b, _ uint32) uint32 { return truth(a <= b) },
	"setp.gt.u32 p, r2, r3; selp.b32 r2, 1, 0, p;": func(a, b, _ uint32) uint32 { return truth(a > b) },
	"setp.ge.u32 p, r2, r3; selp.b32 r2, r4, r3, p;": func(a, b, c uint32) uint32 {
		if a >= b {
			return c
		}
		return b
	},
}

// references64 are instructions that leave a result in d1, and their meaning for d1, d2 and r2, which is the low half of
// d1.
var references64 = map[string]func(a, b uint64, n uint32) uint64{
	"add.u64 d1, d1, d2;":                      func(a, b uint64, _ uint32) uint64 { return a + b },
	"sub.u64 d1, d1, d2;":                      func(a, b uint64, _ uint32) uint64 { return a - b },
	"xor.b64 d1, d1, d2;":                      func(a, b uint64, _ uint32) uint64 { return a ^ b },
	"and.b64 d1, d1, d2;":                      func(a, b uint64, _ uint32) uint64 { return a & b },
	"or.b64 d1, d1, d2;":                       func(a, b uint64, _ uint32) uint64 { return a | b },
	"min.u64 d1, d1, d2;":                      func(a, b uint64, _ uint32) uint64 { return min(a, b) },
	"mul.lo.u64 d1, d1, d2;":                   func(a, b uint64, _ uint32) uint64 { return a * b },
	"mul.hi.u64 d1, d1, d2;":                   func(a, b uint64, _ uint32) uint64 { hi, _ := bits.Mul64(a, b); return hi },
	"mul.wide.u32 d1, r2, r2;":                 func(_, _ uint64, n uint32) uint64 { return uint64(n) * uint64(n) },
	"mad.wide.u32 d1, r2, r2, d2;":             func(_, b uint64, n uint32) uint64 { return uint64(n)*uint64(n) + b },
	"shl.b64 d1, d2, r2;":                      func(_, b uint64, n uint32) uint64 { return b << n },
	"shr.u64 d1, d2, r2;":                      func(_, b uint64, n uint32) uint64 { return b >> n },
	"mov.u64 d1, d2;":                          func(_, b uint64, _ uint32) uint64 { return b },
	"cvta.to.global.u64 d1, d2;":               func(_, b uint64, _ uint32) uint64 { return b },
	"cvt.u64.u32 d1, r2;":                      func(_, _ uint64, n uint32) uint64 { return uint64(n) },
	"setp.eq.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a == b, a) },
	"setp.ne.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a != b, a) },
	"setp.lt.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a < b, a) },
	"setp.le.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a <= b, a) },
	"setp.gt.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a > b, a) },
	"setp.ge.u64 p, d1, d2; @p mov.u64 d1, 1;": func(a, b uint64, _ uint32) uint64 { return either(a >= b, a) },
}

// either is 1 if yes, else another value.
func either(yes bool, other uint64) uint64 {
	if yes {
		return 1
	}
	return other
}

// Each instruction gives what the ISA defines at the edges of its operands, in each thread of its own.
func TestReferences(t *testing.T) {
	t.Parallel()
	in := edgePairs()
	for body, want := range references32 {
		for i, got := range through(t, in, body) {
			a, b, c := in[i][0], in[i][1], in[i][2]
			if want := want(a, b, c); got[0] != want {
				t.Errorf("%s with %#x, %#x, %#x: got %#x, want %#x", body, a, b, c, got[0], want)
			}
		}
	}
	for body, want := range references64 {
		for i, got := range through(t, in, body+" mov.b64 {r2, r3}, d1;") {
			a, b := uint64(in[i][1])<<32|uint64(in[i][0]), uint64(in[i][3])<<32|uint64(in[i][2])
			got := uint64(got[1])<<32 | uint64(got[0])
			if want := want(a, b, in[i][0]); got != want {
				t.Errorf("%s with %#x, %#x: got %#x, want %#x", body, a, b, got, want)
			}
		}
	}
}

// Threads that a guard excludes keep the old value of the result, whatever the instruction computes for them.
func TestGuardsOfEachInstruction(t *testing.T) {
	t.Parallel()
	in := edgePairs()
	for body, want := range references32 {
		last := strings.LastIndex(strings.TrimSuffix(body, ";"), ";") + 1
		guarded := body[:last] + " and.b32 r6, r0, 5; setp.eq.u32 q, r6, 4; @!q " + strings.TrimSpace(body[last:])
		for i, got := range through(t, in, ".reg .pred q; "+guarded) {
			expected := in[i][0]
			if i&5 != 4 {
				expected = want(in[i][0], in[i][1], in[i][2])
			}
			if got[0] != expected {
				t.Errorf("%s, thread %d: got %#x, want %#x", guarded, i, got[0], expected)
			}
		}
	}
}

// Every opcode that the simulator accepts is compared with a reference: here, or as memory or tensor instruction below.
func TestEveryOpcodeHasAReference(t *testing.T) {
	t.Parallel()
	known := map[string]bool{
		"ld.param.u32": true, "ld.param.u64": true, "mov.b64": true, // the tests' own frame
		"ldmatrix.sync.aligned.m8n8.x4.shared.b16": true, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": true,
		"cp.async.cg.shared.global": true, "cp.async.commit_group": true, "cp.async.wait_group": true,
	}
	add := func(body string) {
		for _, statement := range strings.Split(body, ";") {
			for _, word := range strings.Fields(statement) {
				if !strings.HasPrefix(word, "@") {
					known[word] = true
					break
				}
			}
		}
	}
	for body := range references32 {
		add(body)
	}
	for body := range references64 {
		add(body)
	}
	for _, a := range accesses {
		for _, space := range []string{"ld.global", "ld.global.nc", "ld.shared", "st.global", "st.shared"} {
			known[space+a.kind] = true
		}
	}
	for opcode := range opcodes {
		if !known[opcode] {
			t.Errorf("%s has no reference", opcode)
		}
	}
}

// accesses are the kinds of loads and stores, the bytes of each, and their registers.
var accesses = []struct {
	kind  string
	bytes int
	regs  string
}{
	{".u32", 4, "r2"}, {".s32", 4, "r2"}, {".v2.u32", 8, "{r2, r3}"}, {".v2.s32", 8, "{r2, r3}"},
	{".v4.u32", 16, "{r2, r3, r4, r5}"}, {".v4.s32", 16, "{r2, r3, r4, r5}"}, {".u64", 8, "d1"},
	{".v2.u64", 16, "{d1, d2}"},
}

// What a thread stores in either memory, it loads; all other words stay as they were.
func TestLoadsAndStores(t *testing.T) {
	t.Parallel()
	in := edgePairs()
	for _, a := range accesses {
		for _, space := range []string{"global", "shared"} {
			at := map[string]string{"global": "[d0+1024]", "shared": "[r1]"}[space]
			old := fmt.Sprintf("mov.u32 r6, 0x5a5a5a5a; st.%[1]s.v4.u32 %[2]s, {r6, r6, r6, r6}; ", space, at)
			whole := fmt.Sprintf("st.%[1]s%[2]s %[3]s, %[4]s; ld.%[1]s.v4.u32 {r2, r3, r4, r5}, %[3]s;", space, a.kind, at, a.regs)
			for i, got := range through(t, in, old+whole) {
				want := [4]uint32{0x5a5a_5a5a, 0x5a5a_5a5a, 0x5a5a_5a5a, 0x5a5a_5a5a}
				copy(want[:], in[i][:a.bytes/4])
				if got != want {
					t.Fatalf("st.%s%s, thread %d: got %x, want %x", space, a.kind, i, got, want)
				}
			}
			part := fmt.Sprintf("st.%[1]s.v4.u32 %[3]s, {r2, r3, r4, r5}; mov.u32 r2, 0; mov.u32 r3, 0; mov.u32 r4, 0; mov.u32 r5, 0; "+
				"ld.%[1]s%[2]s %[4]s, %[3]s;", space, a.kind, at, a.regs)
			if strings.HasSuffix(a.kind, "u64") {
				part += " mov.b64 {r2, r3}, d1;"
			}
			if a.kind == ".v2.u64" {
				part += " mov.b64 {r4, r5}, d2;"
			}
			for i, got := range through(t, in, part) {
				var want [4]uint32
				copy(want[:], in[i][:a.bytes/4])
				if got != want {
					t.Fatalf("ld.%s%s, thread %d: got %x, want %x", space, a.kind, i, got, want)
				}
			}
		}
	}
}

// A load or store of n bytes is aligned to n, reaches the last n bytes of its memory, and nothing beyond.
func TestBoundsOfEachAccess(t *testing.T) {
	t.Parallel()
	for _, a := range accesses {
		for space, size := range map[string]int{"global": 1024, "shared": 1024} {
			start := map[string]string{"global": "ld.param.u64 d3, [p_out];", "shared": "mov.u32 r7, sh;"}[space]
			pointer := map[string]string{"global": "d3", "shared": "r7"}[space]
			beyond := map[string]string{"global": "is in no allocation", "shared": "out of range"}[space]
			for _, c := range []struct {
				at   int
				want string
			}{
				{size - a.bytes, ""}, {size, beyond}, {size - a.bytes + 4, "not aligned"}, {size - a.bytes + 2, "not aligned"},
				{1 << 30, beyond},
			} {
				if c.want == "not aligned" && c.at%a.bytes == 0 {
					continue
				}
				_, _, err := execute(t, fmt.Sprintf(`%s mov.u32 r2, 1; mov.u32 r3, 1; mov.u32 r4, 1; mov.u32 r5, 1; mov.u64 d1, 1; mov.u64 d2, 1;
					setp.eq.u32 p, r0, 63; @p st.%s%s [%s+%d], %s;`, start, space, a.kind, pointer, c.at, a.regs))
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("st.%s%s at %d: %v, want %q", space, a.kind, c.at, err, c.want)
				}
				if err != nil && !strings.Contains(err.Error(), "thread 63 at") {
					t.Errorf("st.%s%s at %d: %v, which does not name thread 63", space, a.kind, c.at, err)
				}
			}
		}
	}
}
