package canonical

import (
	"errors"
	"fmt"
)

// errVector refuses a vector instruction whose number is not in its shortest form: wazero reads only one byte of it,
// and takes the rest as further instructions. No compiler of WebAssembly 2.0 writes one.
var errVector = errors.New("instruction 0xfd: not of WebAssembly 2.0, or number not in its shortest form")

// instruction skips one instruction of WebAssembly 2.0. It returns the float type whose NaN the instruction may produce
// with processor-specific bits.
func (r *reader) instruction() (makes float, err error) {
	op := r.byte()
	switch {
	case op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b, op == 0xd1: // nothing follows
	case op >= 0x02 && op <= 0x04: // block, loop, if: a type, as a number of 33 bits
		r.skipLEB(5)
	case op == 0x0c, op == 0x0d, op == 0x10, op >= 0x20 && op <= 0x26, op == 0xd2: // an index
		r.u32()
	case op == 0x0e: // br_table
		for range r.count() {
			r.u32()
		}
		r.u32()
	case op == 0x11: // call_indirect
		r.u32()
		r.u32()
	case op == 0x1c: // select with types
		r.take(r.u32())
	case op >= 0x28 && op <= 0x3e: // loads and stores: alignment and offset
		r.u32()
		r.u32()
	case op == 0x3f, op == 0x40, op == 0xd0: // memory.size, memory.grow, ref.null
		r.byte()
	case op == 0x41:
		r.skipLEB(5)
	case op == 0x42:
		r.skipLEB(10)
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op >= 0x45 && op <= 0xc4:
		makes = scalar(op)
	case op == 0xfc:
		err = r.bulk()
	case op == 0xfd:
		makes, err = r.vector()
	default:
		err = fmt.Errorf("instruction %#02x is not of WebAssembly 2.0", op)
	}
	if r.err != nil {
		err = r.err
	}
	return makes, err
}

// scalar is the kind of result of an instruction on numbers.
func scalar(op byte) float {
	switch {
	// f32: ceil, floor, trunc, nearest, sqrt, add, sub, mul, div, min, max; demote
	case op >= 0x8d && op <= 0x97, op == 0xb6:
		return f32
	case op >= 0x9b && op <= 0xa5, op == 0xbb: // likewise f64; promote
		return f64
	}
	return none
}

// bulk skips the rest of an instruction that begins with 0xfc.
func (r *reader) bulk() error {
	switch op := r.u32(); {
	case op <= 7: // saturating truncations
	case op == 8, op == 10, op == 12, op == 14: // memory.init, memory.copy, table.init, table.copy
		r.u32()
		r.u32()
	// data.drop, memory.fill, elem.drop, table.grow, table.size, table.fill
	case op == 9, op == 11, op == 13, op >= 15 && op <= 17:
		r.u32()
	default:
		return fmt.Errorf("instruction 0xfc %d is not of WebAssembly 2.0", op)
	}
	return nil
}

// vector skips the rest of an instruction that begins with 0xfd.
func (r *reader) vector() (float, error) {
	op := uint32(r.byte())
	if op >= 0x80 && r.byte() != 1 {
		return none, errVector
	}
	switch {
	case op <= 11, op == 92, op == 93: // loads and v128.store
		r.u32()
		r.u32()
	case op == 12, op == 13: // v128.const, i8x16.shuffle
		r.take(16)
	case op >= 21 && op <= 34: // lanes
		r.byte()
	case op >= 84 && op <= 91: // loads and stores of lanes
		r.u32()
		r.u32()
		r.byte()
	}
	switch op {
	// ceil, floor, trunc, nearest, demote; sqrt, add, sub, mul, div, min, max
	case 0x67, 0x68, 0x69, 0x6a, 0x5e, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9:
		return f32x4, nil
	case 0x74, 0x75, 0x7a, 0x94, 0x5f, 0xef, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5:
		return f64x2, nil
	}
	return none, nil
}
