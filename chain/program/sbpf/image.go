package sbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
)

const (
	headerSize  = 64
	segmentSize = 56
	region      = 1 << 32 // where the program lies for the machine
)

// resolve writes the addresses of constants, given where the constants lie.
func (p *program) resolve(rodata uint64) {
	for _, a := range p.addresses {
		if to := rodata + a.to; a.inText {
			binary.LittleEndian.PutUint32(p.text[a.at+4:], uint32(to))
			binary.LittleEndian.PutUint32(p.text[a.at+12:], uint32(to>>32))
		} else {
			binary.LittleEndian.PutUint64(p.rodata[a.at:], to)
		}
	}
}

// image appends little-endian structures.
type image struct{ bytes.Buffer }

func (m *image) put(values ...any) {
	for _, v := range values {
		if err := binary.Write(m, binary.LittleEndian, v); err != nil {
			panic(err) // only fixed-size values are put into a buffer
		}
	}
}

func header() elf.Header64 {
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_BPF), Version: 1, Ehsize: headerSize,
		Phentsize: segmentSize, Shentsize: 64}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	return h
}

// v3: constants at address 0, code at 1<<32, syscalls by hash.
func (p *program) v3() []byte {
	p.resolve(0)
	for _, s := range p.syscalls {
		binary.LittleEndian.PutUint32(p.text[s.at+4:], syscallHash(s.name))
	}
	var m image
	h := header()
	h.Flags, h.Phoff, h.Phnum, h.Entry = uint32(V3), headerSize, 2, region+p.entry
	rodataAt := uint64(headerSize + 2*segmentSize)
	segment := func(flags elf.ProgFlag, at, address uint64, b []byte) elf.Prog64 {
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: at, Vaddr: address, Paddr: address,
			Filesz: uint64(len(b)), Memsz: uint64(len(b)), Align: 8}
	}
	m.put(h, segment(elf.PF_R, rodataAt, 0, p.rodata),
		segment(elf.PF_X, rodataAt+uint64(len(p.rodata)), region, p.text))
	m.Write(p.rodata)
	m.Write(p.text)
	return m.Bytes()
}

// v0: all at 1<<32 plus its place in the file, syscalls by name.
func (p *program) v0() []byte {
	textAt := uint64(headerSize)
	rodataAt := textAt + uint64(len(p.text))
	p.resolve(region + rodataAt)
	var names []string
	for _, s := range p.syscalls {
		names = append(names, s.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)

	var dynsym, dynstr, rel image
	dynsym.put(elf.Sym64{})
	dynstr.WriteByte(0)
	for _, n := range names {
		dynsym.put(elf.Sym64{Name: uint32(dynstr.Len()), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_NOTYPE)})
		dynstr.WriteString(n + "\x00")
	}
	for dynstr.Len()%8 != 0 {
		dynstr.WriteByte(0)
	}
	for _, s := range p.syscalls {
		binary.LittleEndian.PutUint32(p.text[s.at+4:], 0xffffffff)
		number, _ := slices.BinarySearch(names, s.name)
		rel.put(elf.Rel64{Off: textAt + s.at, Info: elf.R_INFO(uint32(number)+1, relCall)})
	}
	const dynamicEntries, dynamicSize = 8, 8 * 16
	dynamicAt := rodataAt + uint64(len(p.rodata))
	dynsymAt := dynamicAt + dynamicSize
	dynstrAt := dynsymAt + uint64(dynsym.Len())
	relAt := dynstrAt + uint64(dynstr.Len())
	namesAt := relAt + uint64(rel.Len())
	dynamic := [dynamicEntries]elf.Dyn64{
		{Tag: int64(elf.DT_STRTAB), Val: dynstrAt}, {Tag: int64(elf.DT_SYMTAB), Val: dynsymAt},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(dynstr.Len())}, {Tag: int64(elf.DT_SYMENT), Val: 24},
		{Tag: int64(elf.DT_REL), Val: relAt}, {Tag: int64(elf.DT_RELSZ), Val: uint64(rel.Len())},
		{Tag: int64(elf.DT_RELENT), Val: 16},
		{Tag: int64(elf.DT_NULL)},
	}
	const sectionNames = "\x00.text\x00.rodata\x00.dynamic\x00.dynsym\x00.dynstr\x00.rel.dyn\x00.shstrtab\x00"
	tableAt := (namesAt + uint64(len(sectionNames)) + 7) &^ 7

	var m image
	h := header()
	h.Entry, h.Shoff, h.Shnum, h.Shstrndx = textAt+p.entry, tableAt, 8, 7
	m.put(h)
	m.Write(p.text)
	m.Write(p.rodata)
	m.put(dynamic)
	m.Write(dynsym.Bytes())
	m.Write(dynstr.Bytes())
	m.Write(rel.Bytes())
	m.WriteString(sectionNames)
	m.Write(make([]byte, tableAt-uint64(m.Len())))
	section := func(name string, t elf.SectionType, flags elf.SectionFlag, at, size, each uint64, link uint32) {
		s := elf.Section64{Name: uint32(strings.Index(sectionNames, name+"\x00")), Type: uint32(t),
			Flags: uint64(flags), Off: at, Size: size, Link: link, Addralign: 8, Entsize: each}
		if flags&elf.SHF_ALLOC != 0 {
			s.Addr = at
		}
		m.put(s)
	}
	m.put(elf.Section64{})
	section(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, textAt, uint64(len(p.text)), 0, 0)
	section(".rodata", elf.SHT_PROGBITS, elf.SHF_ALLOC, rodataAt, uint64(len(p.rodata)), 0, 0)
	section(".dynamic", elf.SHT_DYNAMIC, elf.SHF_ALLOC, dynamicAt, dynamicSize, 16, 5)
	section(".dynsym", elf.SHT_DYNSYM, elf.SHF_ALLOC, dynsymAt, uint64(dynsym.Len()), 24, 5)
	section(".dynstr", elf.SHT_STRTAB, elf.SHF_ALLOC, dynstrAt, uint64(dynstr.Len()), 0, 0)
	section(".rel.dyn", elf.SHT_REL, elf.SHF_ALLOC, relAt, uint64(rel.Len()), 16, 4)
	section(".shstrtab", elf.SHT_STRTAB, 0, namesAt, uint64(len(sectionNames)), 0, 0)
	return m.Bytes()
}
