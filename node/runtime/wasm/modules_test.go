package wasm

import (
	"encoding/binary"
	"slices"
)

// The types of WebAssembly values.
const (
	i32 = 0x7f
	i64 = 0x7e
)

// module is a WebAssembly module that exports its last function as _start, and has one page of memory unless memory is
// set.
type module struct {
	types   [][]byte // of functions
	imports [][]byte // of functions; they come first in the numbering of functions
	foreign [][]byte // imports of other kinds
	memory  []byte   // limits
	tables  [][]byte
	entry   bool // the last function is the start section's too
	bodies  []body
	data    []byte // at dataAt
	after   []byte // sections behind the code
}

// body is a function of the module without parameters and results.
type body struct {
	locals uint32 // of type i64
	code   []byte
}

const (
	dataAt    = 1024
	resultsAt = 32 << 10
	page      = 64 << 10
)

// signature adds a type of function and returns its number.
func (m *module) signature(params []byte, results ...byte) byte {
	m.types = append(m.types, slices.Concat([]byte{0x60, byte(len(params))}, params, []byte{byte(len(results))}, results))
	return byte(len(m.types) - 1)
}

// imports a function and returns its number.
func (m *module) function(from, name string, params []byte, results ...byte) byte {
	t := m.signature(params, results...)
	m.imports = append(m.imports, slices.Concat(text(from), text(name), []byte{0, t}))
	return byte(len(m.imports) - 1)
}

// put adds data and returns its address.
func (m *module) put(b []byte) int {
	at := dataAt + len(m.data)
	m.data = append(m.data, b...)
	return at
}

// bytes encodes the module.
func (m *module) bytes() []byte {
	plain := m.signature(nil)
	memory := m.memory
	if memory == nil {
		memory = []byte{0, 1}
	}
	last := byte(len(m.imports) + len(m.bodies) - 1)
	out := []byte(header)
	out = append(out, section(1, m.types)...)
	if imports := slices.Concat(m.imports, m.foreign); len(imports) > 0 {
		out = append(out, section(2, imports)...)
	}
	out = append(out, section(3, slices.Repeat([][]byte{{plain}}, len(m.bodies)))...)
	if len(m.tables) > 0 {
		out = append(out, section(4, m.tables)...)
	}
	out = append(out, section(5, [][]byte{memory})...)
	out = append(out, section(7, [][]byte{append(text("_start"), 0, last), append(text("memory"), 2, 0)})...)
	if m.entry {
		out = append(out, 8, 1, last)
	}
	var code [][]byte
	for _, b := range m.bodies {
		locals := []byte{0}
		if b.locals > 0 {
			locals = append(binary.AppendUvarint([]byte{1}, uint64(b.locals)), i64)
		}
		code = append(code, sized(slices.Concat(locals, b.code, []byte{0x0b})))
	}
	out = append(out, section(10, code)...)
	if len(m.data) > 0 {
		out = append(out, section(11, [][]byte{slices.Concat([]byte{0}, constant(dataAt), []byte{0x0b}, sized(m.data))})...)
	}
	return append(out, m.after...)
}

func section(id byte, items [][]byte) []byte {
	content := binary.AppendUvarint(nil, uint64(len(items)))
	return append([]byte{id}, sized(append(content, slices.Concat(items...)...))...)
}

func sized(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

func text(s string) []byte { return sized([]byte(s)) }

// constant pushes an i32 if n is an int, and an i64 if it is an int64.
func constant(n any) []byte {
	op, v := byte(0x41), int64(0)
	switch n := n.(type) {
	case int:
		v = int64(int32(n))
	case int64:
		op, v = 0x42, n
	}
	out := []byte{op}
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

// wasiCall is a call of a WASI function, with int for i32 and int64 for i64, and the error number that it must return.
type wasiCall struct {
	function string
	args     []any
	want     byte
}

// call pushes the arguments of a WASI function, imports and calls it.
func (m *module) call(function string, results []byte, args ...any) []byte {
	var params, code []byte
	for _, a := range args {
		code = append(code, constant(a)...)
		if _, ok := a.(int64); ok {
			params = append(params, i64)
		} else {
			params = append(params, i32)
		}
	}
	return append(code, 0x10, m.function(wasiModule, function, params, results...))
}

// calling completes a module that makes the calls in their order and prints a byte for each: its error number.
func (m *module) calling(calls []wasiCall) []byte {
	iov := m.put(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, resultsAt), uint32(len(calls))))
	var code []byte
	for i, c := range calls {
		code = append(code, constant(resultsAt+i)...)
		code = append(code, m.call(c.function, []byte{i32}, c.args...)...)
		code = append(code, 0x3a, 0, 0) // i32.store8
	}
	code = append(code, m.call("fd_write", []byte{i32}, 1, iov, 1, 8)...)
	m.bodies = append(m.bodies, body{code: append(code, 0x1a)}) // drop
	return m.bytes()
}
