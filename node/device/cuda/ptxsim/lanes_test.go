package ptxsim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// words executes a body that sets r2, r3, r4 and r5, and returns those of each thread.
func words(t *testing.T, body string) (out [64][4]uint32) {
	t.Helper()
	g, at, err := execute(t, body+" st.global.v4.u32 [d0], {r2, r3, r4, r5};")
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	raw := make([]byte, 1024)
	if err := g.Read(raw, at); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		for k := range out[i] {
			out[i][k] = binary.LittleEndian.Uint32(raw[16*i+4*k:])
		}
	}
	return out
}

// Each table of lop3 is what the ISA says bit by bit.
func TestTables(t *testing.T) {
	t.Parallel()
	const a, b, c = 0x3c5a_96f0, 0x1234_5678, 0xdead_beef
	for table := 0; table < 256; table += 4 {
		var body strings.Builder
		for k := range 4 {
			fmt.Fprintf(&body, "lop3.b32 r%d, %d, %d, %d, %d; ", 2+k, uint32(a), uint32(b), uint32(c), table+k)
		}
		got := words(t, body.String())[33]
		for k := range 4 {
			var want uint32
			for bit := range 32 {
				entry := uint32(a)>>bit&1<<2 | uint32(b)>>bit&1<<1 | uint32(c)>>bit&1
				want |= uint32(table+k) >> entry & 1 << bit
			}
			if got[k] != want {
				t.Errorf("table %#x: %#x, want %#x", table+k, got[k], want)
			}
		}
	}
}

// Each way to pick bytes without signs is what the ISA says, and so is one that a register names.
func TestPermutations(t *testing.T) {
	t.Parallel()
	all := [8]byte{0x10, 0x91, 0x22, 0xa3, 0x34, 0xb5, 0x46, 0xc7}
	for _, s := range []uint32{0x0000, 0x7654, 0x3210, 0x1032, 0x0123, 0x3456, 0x7777, 0x2705, 0xf210, 0x3a9c} {
		got := words(t, fmt.Sprintf("prmt.b32 r2, 0xa3229110, 0xc746b534, %d; mov.u32 r6, %d; prmt.b32 r3, 0xa3229110, 0xc746b534, r6; "+
			"mov.u32 r4, 0; mov.u32 r5, 0;", s, s))[5]
		var want uint32
		for i := range 4 {
			b := all[s>>(4*i)&7]
			if s>>(4*i)&8 != 0 {
				b = byte(int8(b) >> 7)
			}
			want |= uint32(b) << (8 * i)
		}
		if got[0] != want || got[1] != want {
			t.Errorf("%#x: %#x and %#x, want %#x", s, got[0], got[1], want)
		}
	}
}

// What some threads of a warp compute leaves the values of the others, also where the result is a source.
func TestSomeOfAWarp(t *testing.T) {
	t.Parallel()
	got := words(t, `mov.u32 r2, r0; mov.u32 r3, 7; mov.u32 r4, 9; mov.u32 r5, 100;
		and.b32 r6, r0, 1;
		setp.eq.u32 p, r6, 0;
		@p add.u32 r2, r2, 0xffffffff;
		@!p shl.b32 r3, r3, r2;
		@p mov.u32 r4, r2;
		@p bra EVEN;
		mul.lo.u32 r5, r5, r2;
		div.u32 r5, r5, r2;
		bra TOGETHER;
		EVEN: sub.u32 r5, r5, r0;
		TOGETHER: add.u32 r5, r5, 1;`)
	for i, r := range got {
		n := uint32(i)
		want := [4]uint32{n, 7 << n, 9, 101}
		if i%2 == 0 {
			want = [4]uint32{n - 1, 7, n - 1, 101 - n}
		} else if i >= 32 {
			want[1] = 0
		}
		if r != want {
			t.Errorf("thread %d has %v, want %v", i, r, want)
		}
	}
}
