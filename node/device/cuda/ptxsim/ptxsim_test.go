package ptxsim

import (
	"encoding/binary"
	"strings"
	"testing"
)

// text is a module with one kernel t(out u64, n u32) of 64 threads. Its registers are r0 … r7, d0 … d7 and p; d0 holds out,
// r0 the thread's number.
func text(body string) string {
	return `.version 7.0
.target sm_80
.address_size 64
.visible .entry t(
	.param .u64 p_out,
	.param .u32 p_n
)
.maxntid 64, 1, 1
{
	.reg .u32 r0, r1, r2, r3, r4, r5, r6, r7;
	.reg .u64 d0, d1, d2, d3;
	.reg .pred p;
	.shared .align 16 .b8 sh[1024];
	ld.param.u64 d0, [p_out];
	mov.u32 r0, %tid.x;
	mad.wide.u32 d0, r0, 16, d0;
	mov.u32 r1, sh;
	mad.lo.u32 r1, r0, 16, r1; // the thread's own 16 bytes of shared memory
	` + body + `
	ret;
}
`
}

// execute runs a body with one block; out is 1024 bytes, of which each thread has 16.
func execute(t *testing.T, body string) (*GPU, uint64, error) {
	t.Helper()
	m, err := Parse(text(body))
	if err != nil {
		return nil, 0, err
	}
	g := New(1 << 20)
	out, err := g.Alloc(1024)
	if err != nil {
		t.Fatal(err)
	}
	return g, out, g.Launch(m, "t", 1, 64, []uint64{out, 7})
}

// What a GPU would do without a word is refused, with the reason.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"opcode":               {"fma.rn.f32 r2, r0, r0, r0;", "unknown opcode fma.rn.f32"},
		"operands":             {"add.u32 r2, r0;", "2 operands, want 3"},
		"size":                 {"add.u32 r2, r0, d0;", "register d0 has another size"},
		"target":               {"add.u32 d1, r0, r0;", "no register of this size"},
		"undeclared":           {"add.u32 x, r0, r0;", `no register of this size: "x"`},
		"large constant":       {"add.u32 r2, r0, 0x100000000;", "does not fit"},
		"label":                {"bra NOWHERE;", "no label NOWHERE"},
		"guard":                {"@r0 bra X; X:", "r0 is no predicate"},
		"parameter":            {"ld.param.u64 d1, [p_n];", "no parameter of this size"},
		"declaration":          {".reg .f32 f;", "unknown declaration"},
		"unwritten":            {"add.u32 r2, r3, r0;", "thread 0 at \"add.u32 r2, r3, r0\": reads an unwritten register"},
		"unwritten by some":    {"setp.lt.u32 p, r0, 40; @p mov.u32 r2, 1; add.u32 r3, r2, r2;", "thread 40"},
		"unwritten guard":      {"@p mov.u32 r2, 1;", "reads an unwritten register"},
		"unwritten memory":     {"ld.global.u32 r2, [d0];", "which is unwritten"},
		"unwritten shared":     {"ld.shared.u32 r2, [r1];", "which is unwritten"},
		"beyond memory":        {"st.global.u32 [d0+1008], r0;", "thread 1 at"},
		"across the end":       {"st.global.v4.u32 [d0+16], {r0, r0, r0, r0};", "is in no allocation"},
		"null":                 {"mov.u64 d1, 0; st.global.u32 [d1], r0;", "0x0 is in no allocation"},
		"aligned":              {"add.u64 d0, d0, 4; st.global.v2.u32 [d0], {r0, r0};", "is not aligned to 8"},
		"outside shared":       {"st.shared.u32 [r1+1024], r0;", "out of range"},
		"shared offset":        {"mov.u32 r2, 0; st.shared.u32 [r2], r0;", "out of range"},
		"shared aligned":       {"st.shared.v4.u32 [r1+4], {r0, r0, r0, r0};", "is not aligned to 16"},
		"two write":            {"mov.u32 r2, sh; st.shared.u32 [r2], r0;", "which thread 0 wrote since the last barrier"},
		"write and read":       {"mov.u32 r2, sh; setp.eq.u32 p, r0, 3; @p st.shared.u32 [r2], r0; ld.shared.u32 r3, [r2];", "which thread 3 wrote"},
		"read and write":       {"mov.u32 r2, sh; st.shared.u32 [r1], r0; bar.sync 0; ld.shared.u32 r3, [r2]; setp.eq.u32 p, r0, 40; @p st.shared.u32 [r2], r0;", "which another thread read"},
		"two write globally":   {"ld.param.u64 d0, [p_out]; st.global.u32 [d0], r0;", "which thread 0 wrote in this launch"},
		"read what is written": {"st.global.u32 [d0], r0; ld.global.nc.u32 r2, [d0];", "wrote in this launch"},
		"barrier of some":      {"setp.lt.u32 p, r0, 5; @p bar.sync 0;", "thread 5"},
		"barrier of one warp":  {"setp.lt.u32 p, r0, 32; @!p bra END; bar.sync 0; END: mov.u32 r2, 0;", "1 warps wait at a barrier that 1 never reach"},
		"barrier of the rest":  {"setp.eq.u32 p, r0, 0; @p ret; bar.sync 0;", "is not at the barrier with its warp"},
		"divisor":              {"sub.u32 r2, r0, 5; div.u32 r2, 9, r2;", "thread 5 at \"div.u32 r2, 9, r2\": divides by 0"},
		"without end":          {"X: bra X;", "runs without end"},
		"copy of unwritten":    {"cp.async.cg.shared.global [r1], [d0], 16;", "which is unwritten"},
		"ldmatrix aligned":     {"st.shared.v4.u32 [r1], {r0, r0, r0, r0}; bar.sync 0; add.u32 r1, r1, 4; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r2, r3, r4, r5}, [r1];", "not aligned to 16"},
		"ldmatrix of some":     {"st.shared.v4.u32 [r1], {r0, r0, r0, r0}; bar.sync 0; setp.ne.u32 p, r0, 9; @p ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r2, r3, r4, r5}, [r1];", "thread 9"},
		"ldmatrix early":       {"st.shared.v4.u32 [r1], {r0, r0, r0, r0}; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r2, r3, r4, r5}, [r1];", "since the last barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := execute(t, c.body)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Copies: what is on its way is not touched, and arrives for the thread that waits, and for others after a barrier.
func TestCopies(t *testing.T) {
	t.Parallel()
	run := func(body string) (*GPU, uint64, error) {
		m, err := Parse(text(body))
		if err != nil {
			t.Fatal(err)
		}
		g := New(1 << 20)
		out, err := g.Alloc(1024)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 1024)
		for i := range data {
			data[i] = byte(i / 16)
		}
		if err := g.Write(out, data); err != nil {
			t.Fatal(err)
		}
		return g, out, g.Launch(m, "t", 1, 64, []uint64{out, 7})
	}
	const start = "cp.async.cg.shared.global [r1], [d0], 16; cp.async.commit_group; "
	for body, want := range map[string]string{
		start:                             "ends during a copy",
		start + "ld.shared.u32 r2, [r1];": "during a copy to it",
		start + "st.shared.u32 [r1], r0;": "during a copy to it",
		start + "cp.async.wait_group 1; ld.shared.u32 r2, [r1];":                        "during a copy to it",
		start + "cp.async.wait_group 0; mov.u32 r3, sh; ld.shared.u32 r2, [r3];":        "wrote since the last barrier",
		start + "cp.async.wait_group 0; ld.shared.u32 r2, [r1];":                        "",
		start + "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 r2, [r1];": "",
		"cp.async.cg.shared.global [r1], [d0], 8;":                                      "a copy of 8 bytes",
	} {
		_, _, err := func() (*GPU, uint64, error) {
			if _, err := Parse(text(body)); err != nil {
				return nil, 0, err
			}
			return run(body)
		}()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	// Thread i takes what thread 63−i copied.
	g, out, err := run(start + `cp.async.wait_group 0;
		bar.sync 0;
		mov.u32 r2, sh;
		sub.u32 r3, 63, r0;
		mad.lo.u32 r2, r3, 16, r2;
		ld.shared.u32 r4, [r2];
		st.global.u32 [d0], r4;`)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1024)
	if err := g.Read(got, out); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		if got[16*i] != byte(63-i) {
			t.Fatalf("thread %d took %d", i, got[16*i])
		}
	}
}

// Instructions by examples of the ISA's text.
func TestInstructions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body string
		want uint64
	}{
		{"prmt.b32 r2, 0x33221100, 0x77665544, 0x7531;", 0x77553311},
		{"prmt.b32 r2, 0x80221100, 0x7f665544, 0xfb00;", 0x00ff0000}, // signs of bytes 7 and 3
		{"shf.l.wrap.b32 r2, 0x80000001, 0x12345678, 36;", 0x23456788},
		{"shf.r.wrap.b32 r2, 0x80000001, 0x12345678, 4;", 0x88000000},
		{"shf.r.wrap.b32 r2, 0x80000001, 0x12345678, 32;", 0x80000001},
		{"lop3.b32 r2, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x1e;", 0x1e1e1e1e},
		{"lop3.b32 r2, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xca;", 0xcacacaca},
		{"dp4a.s32.s32 r2, 0x80ff7f01, 0x80027f03, 10;", 10 + 128*128 - 2 + 127*127 + 3},
		{"div.u32 r2, 0xfffffffe, 3;", 0x55555554},
		{"shl.b32 r2, 1, 32;", 0},
		{"sub.u32 r2, 3, 5;", 0xfffffffe},
		{"mul.lo.u32 r2, 0x10001, 0x10001;", 0x20001},
		{"mad.lo.u32 r2, 0xffffffff, 2, 5;", 3},
		{"setp.gt.u32 p, 3, 2; selp.b32 r2, 11, 12, p;", 11},
		{"setp.le.u64 p, 3, 2; selp.b32 r2, 11, 12, p;", 12},
		{"mov.u64 d1, 0x9e3779b97f4a7c15; mul.hi.u64 d1, d1, d1; mov.b64 {r2, r3}, d1;", 0x80b583e8},
		{"mul.wide.u32 d1, 0xffffffff, 0xffffffff; mov.b64 {r3, r2}, d1;", 0xfffffffe},
		{"mad.wide.u32 d1, 0xffffffff, 0xffffffff, 0x1ffffffff; mov.b64 {r2, r3}, d1;", 0},
		{"ld.param.u32 r2, [p_n];", 7},
		{"mov.u32 r2, 0; L: add.u32 r2, r2, 3; setp.lt.u32 p, r2, 10; @p bra L;", 12},
	} {
		g, out, err := execute(t, c.body+" st.global.u32 [d0], r2;")
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		var b [4]byte
		if err := g.Read(b[:], out); err != nil || uint64(binary.LittleEndian.Uint32(b[:])) != c.want {
			t.Errorf("%s: %#x, want %#x, %v", c.body, b, c.want, err)
		}
	}
}

// Threads of a warp that part come together again, and each does what its own branch says.
func TestDivergence(t *testing.T) {
	t.Parallel()
	g, out, err := execute(t, `mov.u32 r2, 0;
		and.b32 r3, r0, 3;
		LOOP: setp.eq.u32 p, r3, 0;
		@p bra DONE;
		add.u32 r2, r2, r0;
		sub.u32 r3, r3, 1;
		bra LOOP;
		DONE: bar.sync 0;
		st.global.u32 [d0], r2;`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(64) {
		var b [4]byte
		if err := g.Read(b[:], out+16*i); err != nil || uint64(binary.LittleEndian.Uint32(b[:])) != i*(i%4) {
			t.Errorf("thread %d: %d, %v", i, b[0], err)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	g := New(1000)
	a, err := g.Alloc(600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Alloc(500); err == nil {
		t.Error("more than there is")
	}
	if err := g.Read(make([]byte, 4), a); err == nil {
		t.Error("the host read what nobody wrote")
	}
	if err := g.Write(a+596, make([]byte, 8)); err == nil {
		t.Error("the host wrote beyond the end")
	}
	if err := g.Free(a + 4); err == nil {
		t.Error("freed what was not allocated")
	}
	if err := g.Free(a); err != nil {
		t.Error(err)
	}
	if free, total := g.Memory(); free != 1000 || total != 1000 {
		t.Error(free, total)
	}
	if err := g.Write(a, make([]byte, 4)); err == nil {
		t.Error("wrote to freed memory")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := text("")
	for i, c := range []struct{ old, new string }{
		{".version", ".verzion"}, {".visible .entry", ".entry"}, {"\n}", ""}, {"ret;", "ret"}, {".param .u64", ".param .f64"},
		{"sh[1024]", "sh[65536]"}, {".align 16", ".align 3"}, {"r0, r1,", "r0, r0,"}, {"\tret;", "X: ret; X:"}, {"\tret;", "ret; X:"},
	} {
		bad := strings.Replace(good, c.old, c.new, 1)
		if _, err := Parse(bad); err == nil || bad == good {
			t.Errorf("%d: %q is read", i, c.new)
		}
	}
	if _, err := Parse(good + good[strings.Index(good, ".visible"):]); err == nil {
		t.Error("an entry twice")
	}
	m, err := Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kernel          string
		blocks, threads int
		args            []uint64
	}{{"x", 1, 64, []uint64{0, 0}}, {"t", 0, 64, []uint64{0, 0}}, {"t", 1, 65, []uint64{0, 0}}, {"t", 1, 96, []uint64{0, 0}}, {"t", 1, 64, nil}, {"t", 1, 64, []uint64{0, 1 << 32}}} {
		if err := New(1).Launch(m, c.kernel, c.blocks, c.threads, c.args); err == nil {
			t.Errorf("%+v is launched", c)
		}
	}
}
