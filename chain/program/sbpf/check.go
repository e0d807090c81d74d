package sbpf

import (
	"encoding/binary"
	"fmt"
)

// Opcodes that need more than being known.
const (
	opLddw   = 0x18
	opBig    = 0xdc // to big-endian, of 16, 32 or 64 bits
	opJump   = 0x05
	opCall   = 0x85
	opCallx  = 0x8d
	opExit   = 0x95
	opMovReg = 0xbf
	opAddImm = 0x07
)

const (
	framePointer = 10
	frameSize    = 4096 // bytes below the frame pointer
	callLocal    = 1    // in a call's source register: imm counts slots from the next one
)

// instruction in its encoded form.
type instruction struct {
	op       uint8
	dst, src uint8
	off      int16
	imm      int32
}

func (p *program) instruction(at uint64) instruction {
	b := p.text[at:]
	return instruction{op: b[0], dst: b[1] & 0x0f, src: b[1] >> 4, off: int16(binary.LittleEndian.Uint16(b[2:])),
		imm: int32(binary.LittleEndian.Uint32(b[4:]))}
}

func (p *program) refuse(at uint64, reason string) error {
	r := &Refusal{Section: textName, Offset: at, Reason: reason}
	if at < uint64(len(p.text)) {
		r.Opcode = p.text[at]
	}
	return r
}

// kind is an accepted opcode's use of its registers.
type kind uint8

const (
	refused kind = iota
	arithmetic
	load  // dst = [src + off]
	store // [dst + off] = src or imm
	jump
	other
)

// kinds are the opcodes that LLVM writes for -mcpu=v2 and that mean the same in eBPF, sBPF v0 and sBPF v3. It is an
// allow list: other opcodes of newer compilers are refused.
var kinds = func() (k [256]kind) {
	const imm, reg = 0x00, 0x08
	// add mul div or and lsh rsh mod xor mov arsh
	for _, op := range []uint8{0x00, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0} {
		k[0x07|op|imm], k[0x07|op|reg] = arithmetic, arithmetic
	}
	k[0x1f], k[0x87] = arithmetic, arithmetic // sub of registers (v2 reads sub of a number the other way round), neg
	// eq gt ge set ne sgt sge lt le slt sle
	for _, op := range []uint8{0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0} {
		k[0x05|op|imm], k[0x05|op|reg] = jump, jump
	}
	k[opJump] = jump
	for _, size := range []uint8{0x00, 0x08, 0x10, 0x18} { // 4, 2, 1, 8 bytes
		k[0x61|size], k[0x62|size], k[0x63|size] = load, store, store
	}
	k[opLddw], k[opBig], k[opCall], k[opExit] = other, other, other, other
	return k
}()

// sizes of a load or store by bits 3 and 4 of its opcode.
var sizes = [4]int{4, 2, 1, 8}

// check verifies the code in one pass: every opcode is supported, every jump and call has a valid target, and every
// stack access is within the frame.
func (p *program) check() error {
	n := uint64(len(p.text))
	if n%slot != 0 {
		return p.refuse(n/slot*slot, fmt.Sprintf("code of %d bytes", n))
	}
	if len(p.functions) == 0 || !p.functions[0] {
		return p.refuse(0, "code before the first function")
	}
	inside := map[uint64]bool{} // second slots of lddw
	bound := map[uint64]bool{}
	for _, s := range p.syscalls {
		bound[s.at] = true
	}
	for at := uint64(0); at < n; at += slot {
		in := p.instruction(at)
		if err := p.checkOne(at, in, bound[at]); err != nil {
			return err
		}
		if in.op == opLddw {
			at += slot
			inside[at] = true
		}
	}
	for _, s := range p.syscalls {
		bound[s.at] = s.name == "abort" // from here on: does not return
	}
	return p.checkTargets(inside, bound)
}

func (p *program) checkOne(at uint64, in instruction, bound bool) error {
	k := kinds[in.op]
	switch {
	case k == refused:
		return p.refuse(at, whyRefused(in.op))
	case in.dst > framePointer || in.src > framePointer:
		return p.refuse(at, fmt.Sprintf("registers %d and %d", in.dst, in.src))
	case (k == arithmetic || k == load || in.op == opLddw || in.op == opBig) && in.dst == framePointer:
		return p.refuse(at, "a write to the frame pointer")
	case k == store && in.op&7 == 3 && in.src == framePointer:
		return p.refuse(at, "the frame pointer is stored: its use cannot be followed")
	case k == load && in.src == framePointer:
		return p.frame(at, int64(in.off), sizes[in.op>>3&3])
	case k == store && in.dst == framePointer:
		return p.frame(at, int64(in.off), sizes[in.op>>3&3])
	case k == arithmetic && in.off != 0:
		return p.refuse(at, "arithmetic with an offset: signed division or a move with sign, of a later eBPF")
	case (in.op == 0x37 || in.op == 0x97) && in.imm == 0:
		return p.refuse(at, "division by zero")
	case (in.op == 0x67 || in.op == 0x77 || in.op == 0xc7) && (in.imm < 0 || in.imm > 63):
		return p.refuse(at, fmt.Sprintf("shift by %d", in.imm))
	case in.op == opBig && in.imm != 16 && in.imm != 32 && in.imm != 64:
		return p.refuse(at, fmt.Sprintf("byte swap of %d bits", in.imm))
	case k == arithmetic && in.op&0x08 != 0 && in.src == framePointer:
		return p.frameAddress(at, in)
	case in.op == opLddw:
		return p.wide(at, in)
	case in.op == opCall && !bound && in.src != callLocal:
		return p.refuse(at, "a call without a target")
	}
	return nil
}

// frameAddress accepts one form of an address in the frame: mov rX, r10; add rX, -n.
func (p *program) frameAddress(at uint64, in instruction) error {
	if in.op != opMovReg {
		return p.refuse(at, "arithmetic on the frame pointer")
	}
	if at+slot >= uint64(len(p.text)) {
		return p.refuse(at, "an address of the stack that leads out of the frame")
	}
	next := p.instruction(at + slot)
	if next.op != opAddImm || next.dst != in.dst {
		return p.refuse(at,
			"a copy of the frame pointer is not lowered by the next instruction: its use cannot be followed")
	}
	return p.frame(at+slot, int64(next.imm), 0)
}

// frame holds an access to bytes below the frame pointer.
func (p *program) frame(at uint64, offset int64, size int) error {
	if offset < -frameSize || offset+int64(size) > 0 {
		return p.refuse(at, fmt.Sprintf("stack at %d: a frame has the %d bytes below its pointer", offset, frameSize))
	}
	return nil
}

// wide holds the two slots of an lddw together.
func (p *program) wide(at uint64, in instruction) error {
	if at+slot >= uint64(len(p.text)) {
		return p.refuse(at, "half an lddw")
	}
	if second := p.instruction(at + slot); in.src != 0 || in.off != 0 || second.op != 0 || second.dst != 0 ||
		second.src != 0 || second.off != 0 {
		return p.refuse(at, "an lddw that is not a number")
	}
	return nil
}

// checkTargets holds every jump inside its function, every call to the begin of one, and no function runs into the
// next.
func (p *program) checkTargets(inside, aborts map[uint64]bool) error {
	n := uint64(len(p.text))
	begin := uint64(0)
	end := p.endOf(0)
	for at := uint64(0); at < n; at += slot {
		if p.functions[at] {
			begin, end = at, p.endOf(at)
		}
		if inside[at] {
			if p.functions[at] {
				return p.refuse(at, "a function begins inside of an lddw")
			}
			continue
		}
		in := p.instruction(at)
		after := at + slot
		if in.op == opLddw {
			after += slot
		}
		switch {
		case after >= end && in.op != opExit && in.op != opJump && !aborts[at]:
			return p.refuse(at, "the code runs past its function's end")
		case kinds[in.op] == jump:
			to := int64(at) + slot + int64(in.off)*slot
			if to < int64(begin) || to >= int64(end) || inside[uint64(to)] {
				return p.refuse(at, fmt.Sprintf("a jump to %#x, out of its function", to))
			}
		case in.op == opCall && in.src == callLocal:
			to := int64(at) + slot + int64(in.imm)*slot
			if in.imm == -1 || to < 0 || !p.functions[uint64(to)] { // v0 takes -1 for "to be bound"
				return p.refuse(at, fmt.Sprintf("a call to %#x, where no function begins", to))
			}
		}
	}
	return nil
}

// endOf is where the function at begin must end: where the next one begins.
func (p *program) endOf(begin uint64) uint64 {
	for at := begin + slot; at < uint64(len(p.text)); at += slot {
		if p.functions[at] {
			return at
		}
	}
	return uint64(len(p.text))
}

// whyRefused describes the opcode, as far as it is known.
func whyRefused(op uint8) string {
	switch {
	case op&0x07 == 0x04:
		return "32-bit arithmetic: the upper half differs between eBPF and sBPF: compile with -mcpu=v2"
	case op&0x07 == 0x06:
		return "32-bit jump: compile with -mcpu=v2"
	case op == opCallx:
		return "call through a register: calls through pointers are not taken"
	case op == 0x0d:
		return "jump through a register: compile without jump tables"
	case op&0xe7 == 0xc3:
		return "atomic access: a program runs alone"
	case op&0xe7 == 0x81:
		return "load with sign, of a later eBPF: compile with -mcpu=v2"
	case op == 0x17:
		return "subtraction of a number, which versions of sBPF read differently"
	case op&0x07 == 0x00 || op&0x07 == 0x01:
		return "load of a form that Solana does not have"
	}
	return "not known"
}
