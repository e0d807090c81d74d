package ptxsim

import (
	"encoding/binary"
	"strings"
	"testing"
)

// Launches follow each other: one may read what an earlier one wrote, and within one no thread touches what another
// thread of any block writes.
func TestLaunches(t *testing.T) {
	t.Parallel()
	const own = "mov.u32 r2, %ctaid.x; mad.wide.u32 d0, r2, 1024, d0; " // the thread's own 16 bytes of all blocks'
	const next = "ld.param.u64 d1, [p_out]; xor.b32 r3, r0, 32; mad.wide.u32 d1, r3, 16, d1; "
	for _, c := range []struct {
		name, first, second string
		blocks              int
		want                string // the error of the second launch
	}{
		{"its own words", own + "st.global.u32 [d0], r0;", own + "ld.global.u32 r2, [d0]; add.u32 r2, r2, 1; st.global.u32 [d0], r2;", 2, ""},
		{"words of an earlier launch", "st.global.u32 [d0], r0;", next + "ld.global.u32 r2, [d1]; ld.global.nc.u32 r2, [d1];", 1, ""},
		{"words of another thread", "st.global.u32 [d0], r0;", next + "st.global.u32 [d0], r0; bar.sync 0; ld.global.u32 r2, [d1];", 1, "wrote in this launch"},
		{"its own words, declared constant", "st.global.u32 [d0], r0;", "st.global.u32 [d0], r0; ld.global.nc.u32 r2, [d0];", 1, "wrote in this launch"},
		{"words of another block", own + "st.global.u32 [d0], r0;", "st.global.u32 [d0], r0;", 2, "block 1: thread 0 at"},
		{"a copy of words of this launch", "st.global.v4.u32 [d0], {r0, r0, r0, r0};", "st.global.u32 [d0], r0; cp.async.cg.shared.global [r1], [d0], 16;", 1, "wrote in this launch"},
	} {
		g := New(1 << 20)
		at, err := g.Alloc(2048)
		if err != nil {
			t.Fatal(err)
		}
		for i, body := range []string{c.first, c.second} {
			m, err := Parse(text(body))
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			err = g.Launch(m, "t", c.blocks, 64, []uint64{at, 0})
			want := c.want
			if i == 0 {
				want = ""
			}
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, launch %d: %v, want %q", c.name, i+1, err, want)
			}
		}
	}
}

// Every block has shared memory of its own, in which nothing was written, and its own number.
func TestBlocks(t *testing.T) {
	t.Parallel()
	m, err := Parse(text(`mov.u32 r2, %ctaid.x; mad.wide.u32 d0, r2, 1024, d0; st.shared.u32 [r1], r2; bar.sync 0;
		xor.b32 r3, r0, 63; mov.u32 r4, sh; mad.lo.u32 r4, r3, 16, r4; ld.shared.u32 r5, [r4];
		mad.lo.u32 r5, r5, 100, r3; st.global.u32 [d0], r5;`))
	if err != nil {
		t.Fatal(err)
	}
	g := New(1 << 20)
	at, err := g.Alloc(3 * 1024)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(m, "t", 3, 64, []uint64{at, 0}); err != nil {
		t.Fatal(err)
	}
	for block := range uint64(3) {
		for thread := range uint64(64) {
			var b [4]byte
			if err := g.Read(b[:], at+1024*block+16*thread); err != nil {
				t.Fatal(err)
			}
			if got, want := uint64(binary.LittleEndian.Uint32(b[:])), 100*block+63-thread; got != want {
				t.Fatalf("thread %d of block %d: %d, want %d", thread, block, got, want)
			}
		}
	}
	leak, err := Parse(text(`mov.u32 r2, %ctaid.x; setp.eq.u32 p, r2, 0; @p st.shared.u32 [r1], r0; @!p ld.shared.u32 r3, [r1];`))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Launch(leak, "t", 2, 64, []uint64{at, 0}); err == nil || !strings.Contains(err.Error(), "block 1: thread 0 at") {
		t.Errorf("block 1 reads shared memory of block 0: %v", err)
	}
}

// Between two barriers a word of shared memory has one writer or several readers. Barriers free it for others.
func TestSharedMemoryBetweenBarriers(t *testing.T) {
	t.Parallel()
	const other = "mov.u32 r2, sh; xor.b32 r3, r0, 32; mad.lo.u32 r2, r3, 16, r2; " // the word of a thread of the other warp
	const first = "mov.u32 r2, sh; "                                                // the word of thread 0
	for body, want := range map[string]string{
		"st.shared.u32 [r1], r0; bar.sync 0; " + other + "ld.shared.u32 r4, [r2]; bar.sync 0; st.shared.u32 [r2], r4;": "",
		"st.shared.u32 [r1], r0; bar.sync 0; " + other + "ld.shared.u32 r4, [r2]; st.shared.u32 [r1], r4;":             "since the last barrier",
		"st.shared.u32 [r1], r0; bar.sync 0; " + other + "st.shared.u32 [r2], r0; ld.shared.u32 r4, [r1];":             "since the last barrier",
		"st.shared.u32 [r1], r0; st.shared.u32 [r1], r0; ld.shared.u32 r4, [r1];":                                      "",
		"st.shared.u32 [r1], r0; bar.sync 0; " + first + "ld.shared.u32 r4, [r2]; ld.shared.u32 r4, [r2];":             "",
		// A second reader does not hide the first one.
		"st.shared.u32 [r1], r0; bar.sync 0; " + first + "ld.shared.u32 r4, [r2]; setp.eq.u32 p, r0, 63; @p st.shared.u32 [r2], r4;": "which another thread read",
	} {
		if _, _, err := execute(t, body); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// The host's memory: allocations are apart and aligned, hold nothing at first, and are gone once freed.
func TestAllocations(t *testing.T) {
	t.Parallel()
	g := New(10_000)
	var at []uint64
	for _, size := range []uint64{100, 1, 3000} {
		a, err := g.Alloc(size)
		if err != nil || a%256 != 0 {
			t.Fatalf("%d bytes are allocated at %#x: %v", size, a, err)
		}
		at = append(at, a)
	}
	if free, _ := g.Memory(); free != 10_000-3101 {
		t.Errorf("%d bytes are free, want %d", free, 10_000-3101)
	}
	for _, size := range []uint64{0, 10_000, 1<<64 - 1} {
		if _, err := g.Alloc(size); err == nil {
			t.Errorf("%d bytes are allocated", size)
		}
	}
	word := []byte{1, 2, 3, 4}
	for _, c := range []struct {
		at   uint64
		want string
	}{
		{at[0], ""}, {at[0] + 96, ""}, {at[0] + 97, "go beyond the allocation"}, {at[0] + 100, "is in no allocation"},
		{at[1], "go beyond the allocation"}, {at[2] - 1, "is in no allocation"}, {at[2] + 2996, ""}, {0, "is in no allocation"},
		{1<<64 - 1, "is in no allocation"},
	} {
		err := g.Write(c.at, word)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("write at %#x: %v, want %q", c.at, err, c.want)
		}
		if err := g.Read(make([]byte, 4), c.at); (err == nil) != (c.want == "") {
			t.Errorf("read at %#x: %v, want %q", c.at, err, c.want)
		}
	}
	if err := g.Read(make([]byte, 8), at[0]); err == nil || !strings.Contains(err.Error(), "which is unwritten") {
		t.Errorf("read of a word that was written and one that was not: %v", err)
	}
	if err := g.Free(at[0]); err != nil {
		t.Error(err)
	}
	if err := g.Free(at[0]); err == nil {
		t.Error("an allocation is freed twice")
	}
	if err := g.Read(make([]byte, 4), at[0]); err == nil {
		t.Error("freed memory is read")
	}
	again, err := g.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Read(make([]byte, 4), again); err == nil {
		t.Error("memory that was allocated again has old contents")
	}
}

// Text that is no PTX of this simulator's is refused with its reason, never run as something else.
func TestReasonsOfRefusals(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"bar.sync 1;":              `barrier "1"`,
		"bar.sync;":                `barrier ""`,
		"ret 1;":                   "1 operands, want 0",
		"bra;":                     "0 operands, want 1",
		"mov.u32 r2, -1;":          `operand: got "-1", want a register or a number`,
		"mov.u32 r2, 0x1ffffffff;": "does not fit",
		"mov.u64 d1, %tid.x;":      `operand: got "%tid.x", want a register or a number`,
		"mov.u32 r2, %tid.y;":      `operand: got "%tid.y", want a register or a number`,
		"selp.b32 r2, 1, 0, 1;":    "1 does not fit",
		"mov.b64 {r2}, d0;":        "not a vector of 2",
		"mov.b64 {r2, r3}, r0;":    "register r0 has another size",
		"mov.b64 {r2, r3};":        "1 operands, want 2",
		"ld.global.v4.u64 {d0, d1, d2, d3}, [d0];":            "unknown opcode ld.global.v4.u64",
		"ld.global.u32 r2, d0;":                               `not an address: "d0"`,
		"ld.global.u32 r2, [d0+x];":                           "want a register or a number",
		"ld.global.u32 r2, [d0-4];":                           "no register of this size",
		"ld.global.u32 r2, [r1];":                             "no register of this size",
		"ld.shared.u32 r2, [d0];":                             "no register of this size",
		"ld.shared.u32 r2, [sh];":                             "no register of this size",
		"st.global.u32 [d0];":                                 "1 operands, want 2",
		"st.global.v2.u32 [d0], {r0, 1};":                     "no register of this size",
		"st.global.v2.u32 [d0], r0;":                          "not a vector of 2",
		"ld.param.u32 r2, [p_m];":                             "no parameter of this size: [p_m]",
		"ld.param.u32 r2;":                                    "1 operands, want 2",
		"div.u32 r2, r0;":                                     "2 operands, want 3",
		"prmt.b32 r2, r0, r0, d0;":                            "register d0 has another size",
		"lop3.b32 r2, r0, r0, r0;":                            "4 operands, want 5",
		".reg .u32 r0;":                                       `register "r0" is there twice`,
		".reg .u32 1x;":                                       "is no name",
		".shared .align 0 .b8 s2[4];":                         "alignment of",
		"X: X: add.u32 r2, r0, r0;":                           "label X is there twice",
		"@!x add.u32 r2, r0, r0;":                             "x is no predicate",
		"setp.eq.u32 p, r0, r6;":                              "thread 0 at",
		"setp.eq.u32 p, r0, 63; @p st.shared.u32 [r1+1], r0;": `thread 63 at "@p st.shared.u32 [r1+1], r0"`,
	} {
		if _, _, err := execute(t, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
