package canonical

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// function is a module that exports f, without parameters, of one result, with such locals and such code.
func function(result byte, locals string, code []byte) []byte {
	section := func(id byte, content []byte) []byte {
		return append(binary.AppendUvarint([]byte{id}, uint64(len(content))), content...)
	}
	body := append([]byte(locals), append(code, 0x0b)...)
	body = append(binary.AppendUvarint(nil, uint64(len(body))), body...)
	return slices.Concat([]byte(Magic), section(1, []byte{1, 0x60, 0, 1, result}), section(3, []byte{1, 0}), section(7, []byte("\x01\x01f\x00\x00")),
		section(10, append([]byte{1}, body...)))
}

func const64(bits uint64) []byte { return binary.LittleEndian.AppendUint64([]byte{0x44}, bits) }
func const32(bits uint32) []byte { return binary.LittleEndian.AppendUint32([]byte{0x43}, bits) }
func vector(op uint64) []byte    { return binary.AppendUvarint([]byte{0xfd}, op) }

// constV is a vector of the number twice.
func constV(bits uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(vector(12), bits), bits)
}

// arithmetic is one instruction that may make a NaN, after so many operands.
type arithmetic struct {
	of       float
	operands int
	from     float // the operands' type
	code     []byte
}

// arithmetics are all of them.
func arithmetics() (all []arithmetic) {
	for op := byte(0x8d); op <= 0xa5; op++ {
		a := arithmetic{of: f32, operands: 1, from: f32, code: []byte{op}}
		switch {
		case op >= 0x98 && op <= 0x9a: // copysign, abs, neg
			continue
		case op >= 0x9b:
			a.of, a.from = f64, f64
		}
		if op >= 0x92 && op <= 0x97 || op >= 0xa0 {
			a.operands = 2
		}
		all = append(all, a)
	}
	all = append(all, arithmetic{f32, 1, f64, []byte{0xb6}}, arithmetic{f64, 1, f32, []byte{0xbb}})
	for _, op := range []uint64{0x67, 0x68, 0x69, 0x6a, 0xe3} {
		all = append(all, arithmetic{f32x4, 1, f32x4, vector(op)}, arithmetic{f64x2, 1, f64x2, vector(map[uint64]uint64{0x67: 0x74, 0x68: 0x75, 0x69: 0x7a, 0x6a: 0x94, 0xe3: 0xef}[op])})
	}
	for op := uint64(0xe4); op <= 0xe9; op++ {
		all = append(all, arithmetic{f32x4, 2, f32x4, vector(op)}, arithmetic{f64x2, 2, f64x2, vector(op + 12)})
	}
	return append(all, arithmetic{f32x4, 1, f64x2, vector(0x5e)}, arithmetic{f64x2, 1, f32x4, vector(0x5f)})
}

// module puts an instruction behind its operands and returns the bits of the result, of a vector those of its first
// half.
func (a arithmetic) module(x, y uint64) []byte {
	var code []byte
	for _, v := range []uint64{x, y}[:a.operands] {
		switch a.from {
		case f32:
			code = append(code, const32(uint32(v))...)
		case f64:
			code = append(code, const64(v)...)
		default:
			code = append(code, constV(v)...)
		}
	}
	code = append(code, a.code...)
	switch a.of {
	case f32:
		code = append(code, 0xbc, 0xad) // i32.reinterpret_f32, i64.extend_i32_u
	case f64:
		code = append(code, 0xbd)
	default:
		code = append(append(code, vector(29)...), 0) // i64x2.extract_lane 0
	}
	return function(0x7e, "\x00", code)
}

// canonicalBits reports whether every float in the bits that is a NaN is the canonical one.
func (a arithmetic) canonicalBits(bits uint64) bool {
	ok32 := func(b uint32) bool { f := math.Float32frombits(b); return f == f || b == 0x7fc00000 }
	switch a.of {
	case f64, f64x2:
		f := math.Float64frombits(bits)
		return f == f || bits == 0x7ff8000000000000
	}
	return ok32(uint32(bits)) && ok32(uint32(bits>>32))
}

// engines are an interpreter and a compiler.
func engines(t *testing.T) (interpreter, compiler wazero.Runtime) {
	interpreter = wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
	compiler = wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler())
	t.Cleanup(func() { interpreter.Close(context.Background()); compiler.Close(context.Background()) })
	return interpreter, compiler
}

func call(t *testing.T, r wazero.Runtime, module []byte) uint64 {
	t.Helper()
	m, err := r.Instantiate(t.Context(), module)
	if err != nil {
		t.Fatalf("% x: %v", module, err)
	}
	defer m.Close(t.Context())
	out, err := m.ExportedFunction("f").Call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// Processors choose the sign and payload of the NaNs that they make; on amd64 0/0 is negative, on arm64 positive. A
// seeded program sees the canonical one, whatever instruction makes it and whatever its operands, in the compiler and
// in the interpreter.
func TestAttackNaNBits(t *testing.T) {
	t.Parallel()
	values := []uint64{0, 0x7ff0000000000000, 0xfff0000000000000, 0xbff0000000000000, 0x7ff0000000000001, 0xfff8dead00000000,
		0x7f8000007f800000, 0xff800000ff800000, 0xbf800000bf800000, 0xffc0beefffc0beef, 0x7f8000017f800001}
	made, odd := 0, 0
	interpreter, compiler := engines(t)
	for _, a := range arithmetics() {
		for i, x := range values {
			for _, y := range []uint64{x, values[(i+1)%len(values)], 0} {
				m := a.module(x, y)
				c, err := Module(m, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				want, got := call(t, interpreter, m), call(t, interpreter, c)
				if compiled := call(t, compiler, c); compiled != got {
					t.Fatalf("% x of %x and %x: %x compiled, %x interpreted", a.code, x, y, compiled, got)
				}
				if !a.canonicalBits(got) {
					t.Fatalf("% x of %x and %x is %x", a.code, x, y, got)
				}
				if a.canonicalBits(want) {
					if want != got {
						t.Fatalf("% x of %x and %x is %x, was %x", a.code, x, y, got, want)
					}
				} else {
					odd++
				}
				made++
			}
		}
	}
	if odd == 0 {
		t.Errorf("none of %d results had another NaN before", made)
	}
}

// Rewritten code keeps its meaning: locals and parameters keep their numbers, control flow its targets; what moves bits
// keeps payloads.
func TestCanonicalKeepsMeaning(t *testing.T) {
	t.Parallel()
	interpreter, compiler := engines(t)
	for name, c := range map[string]struct {
		code []byte
		want uint64
	}{
		"locals and a loop": { // local 0: f64 sum, local 1: i32 count; add 0.5 until 10 rounds are over
			slices.Concat([]byte{0x03, 0x40, 0x20, 0}, const64(math.Float64bits(0.5)), []byte{0xa0, 0x21, 0, 0x20, 1, 0x41, 1, 0x6a, 0x22, 1, 0x41, 10, 0x48, 0x0d, 0, 0x0b, 0x20, 0, 0xbd}),
			math.Float64bits(5),
		},
		"neg and copysign of a payload": {
			slices.Concat(const64(0x7ff800000000beef), []byte{0x9a}, const64(math.Float64bits(-1)), []byte{0xa6, 0xbd}), 0xfff800000000beef,
		},
		"unreachable arithmetic": {append([]byte{0x02, 0x7e, 0x42, 7, 0x0c, 0, 0xa0, 0xbd}, 0x0b), 7},
	} {
		m := function(0x7e, "\x02\x01\x7c\x01\x7f", c.code)
		b, err := Module(m, 1<<30)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, engine := range []wazero.Runtime{interpreter, compiler} {
			if was, is := call(t, engine, m), call(t, engine, b); was != c.want || is != c.want {
				t.Errorf("%s: %x, rewritten %x, want %x", name, was, is, c.want)
			}
		}
	}
}

// program builds the program of the runtimes' tests.
func program(t testing.TB) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "../../runtimetest/guest/cmd")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building guest: %v\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// A real program is rewritten once, and again to the same; one with an instruction of another standard is refused.
func TestCanonicalModules(t *testing.T) {
	t.Parallel()
	code := program(t)
	b, err := Module(code, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := Module(code, 1<<30); err != nil || !bytes.Equal(same, b) || len(b) <= len(code) || len(b) > 2*len(code) {
		t.Errorf("%d bytes became %d: %v", len(code), len(b), err)
	}
	for name, m := range map[string][]byte{
		"return_call":      function(0x7e, "\x00", []byte{0x12, 0}),
		"atomics":          function(0x7e, "\x00", []byte{0xfe, 0x03, 0}),
		"relaxed vectors":  function(0x7e, "\x00", vector(0x105)),
		"another number":   function(0x7e, "\x00", []byte{0xfd, 0xef, 0xfd, 0x1d, 0}),
		"long number":      function(0x7e, "\x00", []byte{0xfd, 0xef, 0x80, 0}),
		"no bulk":          function(0x7e, "\x00", []byte{0xfc, 18}),
		"cut off":          code[:len(code)/2],
		"no module":        []byte("\x7fELF"),
		"too many locals":  function(0x7e, "\x01\xff\xff\xff\xff\x0f\x7c", nil),
		"count of nothing": []byte(Magic + "\x0a\x05\xff\xff\xff\xff\x0f"),
	} {
		if _, err := Module(m, 1<<30); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// FuzzCanonical: rewriting ends, and a module that compiled before compiles afterwards.
func FuzzCanonical(f *testing.F) {
	for _, a := range arithmetics() {
		f.Add(a.module(1, 2))
	}
	const command = Magic + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" // one function without parameters and results
	const start = "\x07\x0a\x01\x06_start\x00\x00"
	for _, m := range []string{
		Magic, command + start + "\x0a\x04\x01\x02\x00\x0b", // returns
		command + start + "\x0a\x05\x01\x03\x00\x00\x0b",                          // traps
		command + start + "\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b",          // loops
		command + "\x05\x04\x01\x00\x80\x20" + start + "\x0a\x04\x01\x02\x00\x0b", // 256 MiB of memory
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		if !counted(m) {
			return // the compiler allocates what is counted; see TestAttackModuleMemory
		}
		b, err := Module(m, 1<<30)
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
		defer r.Close(t.Context())
		if _, bad := r.CompileModule(t.Context(), m); bad != nil {
			return
		}
		if errors.Is(err, errVector) {
			return // wazero takes it, but it is not WebAssembly
		}
		if err != nil {
			t.Fatalf("% x compiles and is not rewritten: %v", m, err)
		}
		if _, err := r.CompileModule(t.Context(), b); err != nil {
			t.Fatalf("% x became % x: %v", m, b, err)
		}
	})
}

// counted reports whether m consists of sections in which each count is followed by as many bytes. It refuses those
// with counts inside their elements.
func counted(m []byte) bool {
	r := &reader{b: m[min(len(Magic), len(m)):]}
	for len(r.b) > 0 {
		id, s := r.byte(), &reader{b: r.take(r.u32())}
		switch id {
		case 0, 9, 11: // custom, element, data
			return false
		case 8, 12: // start, data count
		default:
			s.count()
		}
		if s.err != nil {
			return false
		}
	}
	return r.err == nil
}

func BenchmarkCanonical(b *testing.B) {
	code := program(b)
	b.SetBytes(int64(len(code)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Module(code, 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}
