package sbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
)

// Version of the format.
type Version uint8

// V0 runs on every cluster. Clusters are moving to V3.
const (
	V0 Version = 0
	V3 Version = 3
)

// Limits.
const (
	MaxObject = 1 << 20 // bytes
	slot      = 8       // bytes of one instruction; lddw has two
	entry     = "entrypoint"
	textName  = ".text"
)

// Relocations of EM_BPF.
const (
	relAddress = 1  // R_BPF_64_64: a 64-bit address in an lddw
	relData    = 2  // R_BPF_64_ABS64: a 64-bit address in data
	relCall    = 10 // R_BPF_64_32: a call
)

// Refusal is an input that the linker refuses, with its place.
type Refusal struct {
	Section string
	Offset  uint64
	Opcode  uint8 // of the instruction there; 0: it is not about an instruction
	Reason  string
}

func (r *Refusal) Error() string {
	at := fmt.Sprintf("%s+%#x", r.Section, r.Offset)
	if r.Opcode != 0 {
		at += fmt.Sprintf(": opcode %#02x", r.Opcode)
	}
	return at + ": " + r.Reason
}

// program is an object taken apart. Addresses are made of offsets into text and rodata.
type program struct {
	text, rodata []byte
	at           map[elf.SectionIndex]uint64 // where a section's bytes begin in text or rodata
	size         map[elf.SectionIndex]uint64
	names        map[elf.SectionIndex]string
	textIndex    elf.SectionIndex
	functions    map[uint64]bool // where in text they begin
	entry        uint64          // in text
	syscalls     []syscallAt     // calls to be bound, by place
	addresses    []addressAt     // addresses of rodata to be written, by place
	relocated    map[place]bool
}

// place of a relocation.
type place struct {
	section elf.SectionIndex
	offset  uint64
}

type syscallAt struct {
	at   uint64 // in text
	name string
}

// addressAt is an address to be written into an lddw of text, or into 8 bytes of rodata.
type addressAt struct {
	inText bool
	at     uint64
	to     uint64 // offset in rodata
}

// Link makes a program of an object. It refuses unsupported input with a *Refusal.
func Link(object []byte, v Version) ([]byte, error) {
	if v != V0 && v != V3 {
		return nil, fmt.Errorf("sBPF v%d: only v0 and v3 are known", v)
	}
	if len(object) > MaxObject {
		return nil, fmt.Errorf("object of %d bytes, at most %d", len(object), MaxObject)
	}
	p, err := read(object)
	if err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if v == V3 {
		return p.v3(), nil
	}
	return p.v0(), nil
}

func read(object []byte) (*program, error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("reading object: %w", err)
	}
	if f.Machine != elf.EM_BPF || f.Type != elf.ET_REL || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("reading object: %v %v %v %v, want a relocatable little-endian 64-bit BPF object",
			f.Class, f.Data, f.Type, f.Machine)
	}
	p := &program{at: map[elf.SectionIndex]uint64{}, size: map[elf.SectionIndex]uint64{},
		names: map[elf.SectionIndex]string{},
		// offset 0 is unused, so that no address is null in v3
		functions: map[uint64]bool{}, relocated: map[place]bool{}, rodata: make([]byte, 8)}
	for i, s := range f.Sections {
		if err := p.section(elf.SectionIndex(i), s); err != nil {
			return nil, err
		}
	}
	if p.textIndex == 0 {
		return nil, &Refusal{Section: textName, Reason: "no code"}
	}
	p.rodata = append(p.rodata, make([]byte, -len(p.rodata)&7)...)
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("reading symbols: %w", err)
	}
	if err := p.symbols(symbols); err != nil {
		return nil, err
	}
	for _, s := range f.Sections {
		if err := p.relocations(s, symbols); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// section adds a loaded section: one .text, and read-only data.
func (p *program) section(i elf.SectionIndex, s *elf.Section) error {
	if s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 {
		return nil
	}
	refuse := func(reason string) error { return &Refusal{Section: s.Name, Reason: reason} }
	executable := s.Flags&elf.SHF_EXECINSTR != 0
	switch {
	case s.Flags&elf.SHF_WRITE != 0 || s.Type == elf.SHT_NOBITS:
		return refuse("writable data: not supported on Solana: use a constant")
	case s.Type != elf.SHT_PROGBITS:
		return refuse(fmt.Sprintf("section of type %v", s.Type))
	case s.Flags&elf.SHF_COMPRESSED != 0 || s.Flags&elf.SHF_TLS != 0:
		return refuse(fmt.Sprintf("section with flags %v", s.Flags))
	case executable != (s.Name == textName):
		return refuse("code: want one section named .text with only code")
	case executable && p.textIndex != 0:
		return refuse("a second section of code")
	case !executable && !strings.HasPrefix(s.Name, ".rodata"):
		return refuse("section that is neither code nor constants")
	case s.Addralign > 64:
		return refuse(fmt.Sprintf("alignment of %d", s.Addralign))
	}
	data, err := s.Data()
	if err != nil {
		return fmt.Errorf("reading section %s: %w", s.Name, err)
	}
	p.names[i], p.size[i] = s.Name, uint64(len(data))
	if executable {
		p.textIndex, p.text = i, bytes.Clone(data)
		return nil
	}
	for align := max(1, int(s.Addralign)); len(p.rodata)%align != 0; {
		p.rodata = append(p.rodata, 0)
	}
	p.at[i] = uint64(len(p.rodata))
	p.rodata = append(p.rodata, data...)
	return nil
}

// symbols finds the functions and the entry point.
func (p *program) symbols(symbols []elf.Symbol) error {
	found := false
	for _, s := range symbols {
		if s.Section == elf.SHN_COMMON {
			return &Refusal{Section: "COMMON", Reason: fmt.Sprintf("%s is data that can be written", name(s.Name))}
		}
		if s.Section != p.textIndex || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		if s.Value%slot != 0 || s.Value >= uint64(len(p.text)) {
			return &Refusal{Section: textName, Offset: s.Value,
				Reason: fmt.Sprintf("function %s begins outside of the code", name(s.Name))}
		}
		p.functions[s.Value] = true
		if s.Name == entry {
			p.entry, found = s.Value, true
		}
	}
	if !found {
		return &Refusal{Section: textName, Reason: "no function named entrypoint"}
	}
	return nil
}

func (p *program) relocations(s *elf.Section, symbols []elf.Symbol) error {
	target := elf.SectionIndex(s.Info)
	if _, loaded := p.names[target]; !loaded || s.Type != elf.SHT_REL && s.Type != elf.SHT_RELA {
		return nil // of debugging information, or no relocations
	}
	if s.Type != elf.SHT_REL {
		return &Refusal{Section: s.Name, Reason: "relocations with addends"}
	}
	data, err := s.Data()
	if err != nil {
		return fmt.Errorf("reading section %s: %w", s.Name, err)
	}
	if len(data)%16 != 0 {
		return &Refusal{Section: s.Name, Reason: fmt.Sprintf("relocations of %d bytes", len(data))}
	}
	for ; len(data) > 0; data = data[16:] {
		offset, info := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		number := info >> 32
		if number == 0 || number > uint64(len(symbols)) {
			return &Refusal{Section: p.names[target], Offset: offset,
				Reason: fmt.Sprintf("relocation against symbol %d, which is not there", number)}
		}
		if err := p.relocation(target, offset, uint32(info), symbols[number-1]); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) relocation(target elf.SectionIndex, offset uint64, kind uint32, s elf.Symbol) error {
	inText, section := target == p.textIndex, p.names[target]
	width := uint64(slot)
	if inText && kind == relAddress {
		width = 2 * slot
	}
	if offset%slot != 0 || offset > p.size[target] || p.size[target]-offset < width {
		return &Refusal{Section: section, Offset: offset,
			Reason: fmt.Sprintf("relocation %d outside of its section", kind)}
	}
	at := place{target, offset}
	if p.relocated[at] {
		return &Refusal{Section: section, Offset: offset, Reason: "a second relocation of one place"}
	}
	p.relocated[at] = true
	switch {
	case inText && kind == relCall:
		return p.call(offset, s)
	case inText && kind == relAddress:
		if in := p.instruction(offset); in.op != opLddw {
			return p.refuse(offset, "an address in an instruction without an address operand")
		}
		addend := uint64(binary.LittleEndian.Uint32(p.text[offset+4:])) |
			uint64(binary.LittleEndian.Uint32(p.text[offset+12:]))<<32
		return p.address(section, addressAt{inText: true, at: offset}, s, addend)
	case !inText && kind == relData:
		at := p.at[target] + offset
		return p.address(section, addressAt{at: at}, s, binary.LittleEndian.Uint64(p.rodata[at:]))
	}
	return &Refusal{Section: section, Offset: offset,
		Reason: fmt.Sprintf("relocation %d against %s", kind, name(s.Name))}
}

// call binds a call to a syscall or to a function of the program.
func (p *program) call(offset uint64, s elf.Symbol) error {
	in := p.instruction(offset)
	if in.op != opCall {
		return p.refuse(offset, "a call's relocation on another instruction")
	}
	if s.Section == elf.SHN_UNDEF {
		called := s.Name
		if called == trap {
			called = "abort"
		}
		if !syscalls[called] {
			return p.refuse(offset,
				fmt.Sprintf("call of %s: neither defined nor an allowed syscall",
					name(s.Name)))
		}
		p.text[offset+1] &= 0x0f
		p.syscalls = append(p.syscalls, syscallAt{offset, called})
		return nil
	}
	if s.Section != p.textIndex {
		return p.refuse(offset, fmt.Sprintf("call of %s, which is no code", name(s.Name)))
	}
	to := int64(s.Value)
	if elf.ST_TYPE(s.Info) == elf.STT_SECTION {
		to += (int64(in.imm) + 1) * slot
	}
	away := (to - int64(offset) - slot) / slot
	if to < 0 || to > int64(len(p.text)) || to%slot != 0 || away != int64(int32(away)) {
		return p.refuse(offset, "call outside of the code")
	}
	p.text[offset+1] = callLocal<<4 | p.text[offset+1]&0x0f
	binary.LittleEndian.PutUint32(p.text[offset+4:], uint32(int32(away)))
	return nil
}

// address notes where in the constants an address leads.
func (p *program) address(section string, a addressAt, s elf.Symbol, addend uint64) error {
	begin, known := p.at[s.Section]
	to := s.Value + addend
	switch {
	case s.Section == p.textIndex:
		return &Refusal{Section: section, Offset: a.at,
			Reason: fmt.Sprintf("address of code (%s): calls through pointers are not taken", name(s.Name))}
	case !known:
		return &Refusal{Section: section, Offset: a.at,
			Reason: fmt.Sprintf("address of undefined symbol %s", name(s.Name))}
	case to < addend || to > p.size[s.Section]:
		return &Refusal{Section: section, Offset: a.at,
			Reason: fmt.Sprintf("address outside of %s", p.names[s.Section])}
	}
	a.to = begin + to
	p.addresses = append(p.addresses, a)
	return nil
}

// name is a symbol's name, as an error shows it.
func name(symbol string) string {
	if symbol == "" {
		return "a symbol without name"
	}
	return fmt.Sprintf("%.200q", symbol)
}
