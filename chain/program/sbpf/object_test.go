package sbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// object assembles relocatable objects for tests: sections in order, their relocations, symbols.
type object struct {
	machine  elf.Machine
	sections []section
	symbols  []symbol
}

type section struct {
	name   string
	kind   elf.SectionType
	flags  elf.SectionFlag
	data   []byte
	size   uint64 // of NOBITS
	align  uint64
	rela   bool // its relocations are written as RELA
	relocs []reloc
}

type reloc struct {
	offset uint64
	kind   uint32
	symbol int // number in object.symbols
}

type symbol struct {
	name    string
	kind    elf.SymType
	section int // number in object.sections; -1: undefined, -2: common
	value   uint64
}

// insn is one instruction.
func insn(op, dst, src uint8, off int16, imm int32) []byte {
	b := []byte{op, src<<4 | dst}
	b = binary.LittleEndian.AppendUint16(b, uint16(off))
	return binary.LittleEndian.AppendUint32(b, uint32(imm))
}

func code(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var (
	exit  = insn(0x95, 0, 0, 0, 0)
	zero  = insn(0xb7, 0, 0, 0, 0) // r0 = 0
	outer = insn(0x85, 0, 1, 0, -1)
	lddw  = code(insn(0x18, 1, 0, 0, 0), insn(0, 0, 0, 0, 0))
)

// program of this code: one section, one function at its begin.
func of(text ...[]byte) *object {
	return &object{
		machine:  elf.EM_BPF,
		sections: []section{{name: ".text", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, data: code(text...), align: 8}},
		symbols:  []symbol{{name: "entrypoint", kind: elf.STT_FUNC}},
	}
}

// rodata adds a section of constants, and returns its number and that of its symbol.
func (o *object) rodata(name string, data []byte) (int, int) {
	o.sections = append(o.sections, section{name: name, kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, data: data, align: 8})
	o.symbols = append(o.symbols, symbol{kind: elf.STT_SECTION, section: len(o.sections) - 1})
	return len(o.sections) - 1, len(o.symbols) - 1
}

// undefined adds a symbol that is not here and returns its number.
func (o *object) undefined(name string) int {
	o.symbols = append(o.symbols, symbol{name: name, section: -1})
	return len(o.symbols) - 1
}

func (o *object) reloc(section int, offset uint64, kind uint32, symbol int) *object {
	o.sections[section].relocs = append(o.sections[section].relocs, reloc{offset, kind, symbol})
	return o
}

// bytes writes the object: header, contents, section headers.
func (o *object) bytes() []byte {
	var m image
	names, table := image{}, []elf.Section64{{}}
	names.WriteByte(0)
	add := func(name string, s elf.Section64, data []byte) {
		s.Name, s.Off = uint32(names.Len()), headerSize+uint64(m.Len())
		if s.Type != uint32(elf.SHT_NOBITS) {
			s.Size = uint64(len(data))
		}
		names.WriteString(name + "\x00")
		m.Write(data)
		table = append(table, s)
	}
	for _, s := range o.sections {
		add(s.name, elf.Section64{Type: uint32(s.kind), Flags: uint64(s.flags), Size: s.size, Addralign: s.align}, s.data)
	}
	var symbols, strings image
	symbols.put(elf.Sym64{})
	strings.WriteByte(0)
	for _, s := range o.symbols {
		index := uint16(s.section + 1)
		if s.section == -2 {
			index = uint16(elf.SHN_COMMON)
		}
		symbols.put(elf.Sym64{Name: uint32(strings.Len()), Info: uint8(elf.STB_GLOBAL)<<4 | uint8(s.kind), Shndx: index, Value: s.value})
		strings.WriteString(s.name + "\x00")
	}
	symtab := uint32(len(table))
	add(".symtab", elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: symtab + 1, Entsize: 24}, symbols.Bytes())
	add(".strtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, strings.Bytes())
	for i, s := range o.sections {
		if len(s.relocs) == 0 {
			continue
		}
		var rel image
		kind := elf.SHT_REL
		for _, r := range s.relocs {
			rel.put(elf.Rel64{Off: r.offset, Info: uint64(r.symbol+1)<<32 | uint64(r.kind)})
			if s.rela {
				kind = elf.SHT_RELA
				rel.put(uint64(0))
			}
		}
		add(".rel"+s.name, elf.Section64{Type: uint32(kind), Link: symtab, Info: uint32(i + 1), Entsize: 16}, rel.Bytes())
	}
	add(".shstrtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, append(names.Bytes(), ".shstrtab\x00"...))
	h := header()
	h.Type, h.Machine, h.Shentsize, h.Shnum = uint16(elf.ET_REL), uint16(o.machine), 64, uint16(len(table))
	h.Shstrndx, h.Shoff = uint16(len(table)-1), headerSize+uint64(m.Len())
	var out image
	out.put(h)
	out.Write(m.Bytes())
	out.put(table)
	return out.Bytes()
}
