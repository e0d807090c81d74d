// Package canonical makes the NaNs of a WebAssembly module the same on every processor.
//
// WebAssembly leaves the sign and payload of a NaN that arithmetic makes to the processor, and processors differ: 0/0
// is fff8000000000000 on amd64 and 7ff8000000000000 on arm64. Module rewrites a module so that each instruction with a
// result that may be such a NaN is followed by code that puts the canonical NaN (positive, only the first bit of the
// payload set) in its place:
//
//	local.set t  local.get t  f64.const nan  local.get t  local.get t  f64.eq  select
//
// with a local t of each float type that the function needs, behind its own, and likewise for vectors with a mask in
// place of select. Loads, constants, copysign, abs, neg, pmin, pmax and reinterpretations move bits and are left alone,
// as are the sections other than the code section.
//
// Instructions are those of WebAssembly 2.0 (W3C, section 5.4), the set that wazero runs; a module with another one is
// refused.
package canonical

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Magic begins every WebAssembly module of version 1.
const Magic = "\x00asm\x01\x00\x00\x00"

// Module returns a module with its NaNs made canonical. The result has at most the given number of bytes. It returns
// ErrNoModule for bytes that do not begin with Magic. The compiler reports other errors of a module.
func Module(module []byte, most int) ([]byte, error) {
	if !bytes.HasPrefix(module, []byte(Magic)) {
		return nil, ErrNoModule
	}
	r := &reader{b: module[len(Magic):]}
	out := append(make([]byte, 0, len(module)+len(module)/4), Magic...)
	var params []uint32 // of each type
	var types []uint32  // of each function with a body
	for len(r.b) > 0 && r.err == nil {
		id := r.byte()
		content := r.take(r.u32())
		s := &reader{b: content}
		switch id {
		case sectionType:
			params = s.types()
		case sectionFunction:
			for range s.count() {
				types = append(types, s.u32())
			}
		case sectionCode:
			b, err := bodies(s, params, types, most-len(out))
			if err != nil {
				return nil, err
			}
			content = b
		}
		if s.err != nil {
			return nil, s.err
		}
		out = binary.AppendUvarint(append(out, id), uint64(len(content)))
		out = append(out, content...)
	}
	if r.err == nil && len(out) > most {
		r.err = errSize
	}
	return out, r.err
}

const (
	sectionType     = 1
	sectionFunction = 3
	sectionCode     = 10
)

var (
	// ErrNoModule refuses bytes that are no module.
	ErrNoModule = errors.New("not a WebAssembly module of version 1")

	errForm = errors.New("the module's sections are not well formed")
	errSize = errors.New("module with canonical NaNs: too large")
)

// reader reads a module's parts; after the first error everything reads as zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) byte() byte {
	b := r.take(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// take is the next n bytes.
func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail(errForm)
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// u32 is an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := uint(0); shift < 35; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(errForm)
	return 0
}

// skipLEB skips a signed or unsigned number of at most `most` bytes.
func (r *reader) skipLEB(most int) {
	for range most {
		if r.byte() < 0x80 {
			return
		}
	}
	r.fail(errForm)
}

// count is the length of a vector with at least one byte for each element.
func (r *reader) count() uint32 {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)) {
		r.fail(errForm)
		return 0
	}
	return n
}

// types reads the type section: how many parameters each function type has.
func (r *reader) types() (params []uint32) {
	for range r.count() {
		if r.byte() != 0x60 {
			r.fail(errForm)
			return nil
		}
		n := r.u32()
		r.take(n)
		r.take(r.u32())
		params = append(params, n)
	}
	return params
}

// bodies rewrites the code section, to at most `most` bytes.
func bodies(s *reader, params, types []uint32, most int) ([]byte, error) {
	n := s.count()
	if s.err != nil || int(n) != len(types) {
		return nil, errForm
	}
	out := binary.AppendUvarint(nil, uint64(n))
	var scratch body
	for i := range n {
		code := s.take(s.u32())
		if s.err != nil || int(types[i]) >= len(params) {
			return nil, errForm
		}
		b, err := scratch.rewrite(code, params[types[i]], most-len(out))
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = append(binary.AppendUvarint(out, uint64(len(b))), b...)
		if len(out) > most {
			return nil, errSize
		}
	}
	return out, nil
}

// float is a type that can be NaN, with the code that makes its NaN canonical.
type float int

const (
	none float = iota
	f32
	f64
	f32x4
	f64x2
)

// local is the local variable that a float type is kept in: vectors of both share one.
func (f float) local() int { return min(int(f), int(f32x4)) - 1 }

var (
	localTypes = [3]byte{0x7d, 0x7c, 0x7b}
	nan32      = []byte{0, 0, 0xc0, 0x7f}
	nan64      = []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}
)

// append adds the code that makes the value on the stack canonical, with a local to keep it in.
func (f float) append(out []byte, local uint32) []byte {
	get := binary.AppendUvarint([]byte{0x20}, uint64(local))
	out = binary.AppendUvarint(append(out, 0x21), uint64(local)) // local.set
	out = append(out, get...)
	switch f {
	case f32:
		out = append(append(out, 0x43), nan32...)
	case f64:
		out = append(append(out, 0x44), nan64...)
	case f32x4:
		out = append(append(out, 0xfd, 12), bytes.Repeat(nan32, 4)...)
	case f64x2:
		out = append(append(out, 0xfd, 12), bytes.Repeat(nan64, 2)...)
	}
	out = append(append(out, get...), get...)
	switch f {
	case f32:
		out = append(out, 0x5b, 0x1b) // f32.eq, select
	case f64:
		out = append(out, 0x61, 0x1b) // f64.eq, select
	case f32x4:
		out = append(out, 0xfd, 0x41, 0xfd, 0x52) // f32x4.eq, v128.bitselect
	case f64x2:
		out = append(out, 0xfd, 0x47, 0xfd, 0x52) // f64x2.eq, v128.bitselect
	}
	return out
}

// body rewrites functions; its buffer is used again and again.
type body struct{ code []byte }

// rewrite is a function's body anew, valid until the next call: with additional locals, and with code behind each
// instruction that may make a NaN.
func (w *body) rewrite(b []byte, params uint32, most int) ([]byte, error) {
	r := &reader{b: b}
	groups, locals := r.count(), uint64(params)
	declared := b[len(b)-len(r.b):]
	for range groups {
		locals += uint64(r.u32())
		r.byte()
	}
	if r.err != nil || locals > 1<<31 {
		return nil, errForm
	}
	declared = declared[:len(declared)-len(r.b)]
	// The new locals' numbers are those of the order in which they are first needed.
	var at [3]uint32
	var added []byte
	w.code = w.code[:0]
	for len(r.b) > 0 {
		before := r.b
		makes, err := r.instruction()
		if err != nil {
			return nil, err
		}
		w.code = append(w.code, before[:len(before)-len(r.b)]...)
		if makes == none {
			continue
		}
		l := makes.local()
		if at[l] == 0 {
			at[l] = uint32(locals) + uint32(len(added)) + 1
			added = append(added, localTypes[l])
		}
		if w.code = makes.append(w.code, at[l]-1); len(w.code) > most {
			return nil, errSize
		}
	}
	out := binary.AppendUvarint(make([]byte, 0, len(w.code)+len(declared)+16), uint64(groups)+uint64(len(added)))
	out = append(out, declared...)
	for _, t := range added {
		out = append(out, 1, t)
	}
	return append(out, w.code...), nil
}
