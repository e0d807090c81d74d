package ptxsim

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// mmaText multiplies A (16 × 32, by rows) and B (32 × 8, by columns), which are read through shared memory with ldmatrix,
// and adds C (16 × 8). The result takes the registers that are given.
func mmaText(result string) string {
	return `.version 7.0
.target sm_80
.address_size 64
.visible .entry mma(
	.param .u64 p_a,
	.param .u64 p_b,
	.param .u64 p_c,
	.param .u64 p_d
)
.maxntid 32, 1, 1
{
	.reg .u32 l, g, t, row, at, a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, e0, e1, e2, e3;
	.reg .u64 from, to;
	.shared .align 16 .b8 sa[512];
	.shared .align 16 .b8 sb[512];
	mov.u32 l, %tid.x;
	// Each thread copies a half of a row of A, and half of them one of a column of B. The rest copies B again.
	ld.param.u64 from, [p_a];
	mad.wide.u32 from, l, 16, from;
	mov.u32 at, sa;
	mad.lo.u32 at, l, 16, at;
	cp.async.cg.shared.global [at], [from], 16;
	ld.param.u64 from, [p_b];
	mad.wide.u32 from, l, 16, from;
	mov.u32 at, sb;
	mad.lo.u32 at, l, 16, at;
	cp.async.cg.shared.global [at], [from], 16;
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	// Matrix m of ldmatrix has rows 8·(m mod 2) to 8·(m mod 2) + 7 and bytes 16·(m/2) to 16·(m/2) + 15 of A.
	and.b32 row, l, 15;
	shr.u32 t, l, 4;
	mov.u32 at, sa;
	mad.lo.u32 at, row, 32, at;
	mad.lo.u32 at, t, 16, at;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a0, a1, a2, a3}, [at];
	// Of B, matrices 0 and 1 are the halves of its columns.
	and.b32 row, l, 7;
	shr.u32 t, l, 3;
	and.b32 t, t, 1;
	mov.u32 at, sb;
	mad.lo.u32 at, row, 32, at;
	mad.lo.u32 at, t, 16, at;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {b0, b1, b2, b3}, [at];
	// Row l/4 of C and row 8 more, columns 2·(l mod 4) and the next.
	shr.u32 g, l, 2;
	and.b32 t, l, 3;
	mul.lo.u32 row, g, 32;
	mad.lo.u32 row, t, 8, row;
	ld.param.u64 from, [p_c];
	mad.wide.u32 from, row, 1, from;
	ld.global.v2.u32 {c0, c1}, [from];
	ld.global.v2.u32 {c2, c3}, [from+256];
	mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {` + result + `}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3};
	ld.param.u64 to, [p_d];
	mad.wide.u32 to, row, 1, to;
	st.global.v2.u32 [to], {` + strings.Join(strings.Split(result, ", ")[:2], ", ") + `};
	st.global.v2.u32 [to+256], {` + strings.Join(strings.Split(result, ", ")[2:], ", ") + `};
	ret;
}
`
}

// matrices are operands of mma. b is by columns; its second half is unused.
type matrices struct {
	a [16 * 32]byte
	b [16 * 32]byte
	c [16 * 8]int32
}

// product is the result by its definition. It wraps, as there is no .satfinite.
func (m *matrices) product() (out [16 * 8]int32) {
	for i := range 16 {
		for j := range 8 {
			sum := m.c[8*i+j]
			for k := range 32 {
				sum += int32(int8(m.a[32*i+k])) * int32(int8(m.b[32*j+k]))
			}
			out[8*i+j] = sum
		}
	}
	return out
}

// multiply executes mmaText.
func (m *matrices) multiply(t *testing.T, result string) (out [16 * 8]int32) {
	t.Helper()
	module, err := Parse(mmaText(result))
	if err != nil {
		t.Fatal(err)
	}
	g := New(1 << 20)
	var c []byte
	for _, v := range m.c {
		c = binary.LittleEndian.AppendUint32(c, uint32(v))
	}
	var args []uint64
	for _, data := range [][]byte{m.a[:], m.b[:], c} {
		at, err := g.Alloc(uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Write(at, data); err != nil {
			t.Fatal(err)
		}
		args = append(args, at)
	}
	to, err := g.Alloc(512)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(module, "mma", 1, 32, append(args, to)); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 512)
	if err := g.Read(raw, to); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// ldmatrix and mma together are the product of two matrices of int8, also at the ends of int8 and int32, and where the
// result takes the registers of an operand.
func TestMatrixProduct(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	random, low, high := &matrices{}, &matrices{}, &matrices{}
	for i := range random.a {
		random.a[i], random.b[i] = byte(r.Uint32()), byte(r.Uint32())
		low.a[i], low.b[i] = 0x80, 0x80
		high.a[i], high.b[i] = 0x80, 0x7f
	}
	for i := range random.c {
		random.c[i], low.c[i], high.c[i] = int32(r.Uint32()), math.MaxInt32, math.MinInt32
	}
	for name, m := range map[string]*matrices{"random": random, "overflow": low, "underflow": high} {
		want := m.product()
		for _, result := range []string{
			"e0, e1, e2, e3", "c0, c1, c2, c3", "c3, c2, c1, c0", "a0, a1, a2, a3", "b1, c0, a3, b0",
		} {
			if got := m.multiply(t, result); got != want {
				t.Errorf("%s into %s: got %v, want %v", name, result, got, want)
			}
		}
	}
}

// Instructions of a whole warp are refused for a part of it, and with operands of another shape.
func TestTensorRefusals(t *testing.T) {
	t.Parallel()
	const set = "mov.u32 r2, 1; mov.u32 r3, 1; mov.u32 r4, 1; mov.u32 r5, 1; "
	const mma, ldmatrix = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 ", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
	const four = "{r2, r3, r4, r5}"
	for body, want := range map[string]string{
		set + "setp.ne.u32 p, r0, 7; @p " + mma + four + ", " + four + ", {r2, r3}, " + four + ";": "thread 7 at",
		mma + four + ", " + four + ", {r2, r3}, " + four + ";":                                     "reads an unwritten register",
		mma + four + ", {r2, r3}, {r2, r3}, " + four + ";":                                         "not a vector of 4",
		mma + four + ", " + four + ", {r2, r3};":                                                   "3 operands, want 4",
		mma + four + ", " + four + ", {r2, d1}, " + four + ";":                                     "no register of this size",
		ldmatrix + "{r2, r3}, [r1];":                                                               "not a vector of 4",
		ldmatrix + four + ", [d0];":                                                                "no register of this size",
		ldmatrix + four + ";":                                                                      "1 operands, want 2",
		set + "mov.u32 r1, 0; " + ldmatrix + four + ", [r1];":                                      "out of range",
		ldmatrix + four + ", [r5];":                                                                "reads an unwritten register",
		"cp.async.cg.shared.global [r1], 16;":                                                      "2 operands, want 3",
		"cp.async.cg.shared.global [d0], [d0], 16;":                                                "no register of this size",
		"cp.async.cg.shared.global [r1], [r1], 16;":                                                "no register of this size",
		"cp.async.cg.shared.global [r5], [d0], 16;":                                                "reads an unwritten register",
		"cp.async.cg.shared.global [r1], [d1], 16;":                                                "reads an unwritten register",
		"cp.async.commit_group 1;":                                                                 "1 operands, want 0",
		"cp.async.wait_group;":                                                                     "0 operands, want 1",
		"cp.async.wait_group r2;":                                                                  "wait for all but r2 groups",
		"cp.async.wait_group 9;":                                                                   "wait for all but 9 groups",
	} {
		if _, _, err := execute(t, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Groups of copies arrive in their order: a thread that waits for all but n of them may read all but the last n.
func TestGroupsOfCopies(t *testing.T) {
	t.Parallel()
	for left := range 4 {
		for read := range 3 {
			body := "mov.u32 r6, 5; st.global.v4.u32 [d0], {r6, r6, r6, r6}; st.global.v4.u32 [d0+1024], {r6, r6, r6, r6}; "
			m, err := Parse(text(body))
			if err != nil {
				t.Fatal(err)
			}
			copies := "setp.eq.u32 p, r0, 0; @!p ret; mov.u32 r1, sh; "
			for i := range 3 {
				copies += fmt.Sprintf("cp.async.cg.shared.global [r1+%d], [d0], 16; cp.async.commit_group; ", 16*i)
			}
			copies += fmt.Sprintf("cp.async.wait_group %d; ld.shared.u32 r2, [r1+%d]; cp.async.wait_group 0;", left, 16*read)
			reader, err := Parse(text(copies))
			if err != nil {
				t.Fatal(err)
			}
			g := New(1 << 20)
			at, err := g.Alloc(2048)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Launch(m, "t", 1, 64, []uint64{at, 0}); err != nil {
				t.Fatal(err)
			}
			err = g.Launch(reader, "t", 1, 64, []uint64{at, 0})
			if arrived := read < 3-left; (err == nil) != arrived {
				t.Errorf("copy %d of 3 is read with %d on their way: %v", read, left, err)
			}
		}
	}
}
