package sbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestRefusals: everything that is not understood is refused, and the error says where it stands and what it is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	jumps := func(to int16) *object { return of(insn(0x05, 0, 0, to, 0), lddw, exit) }
	cases := []struct {
		name   string
		object *object
		at     string // section+offset, opcode
		why    string
	}{
		{"writable data", of(exit).with(section{name: ".data", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, data: make([]byte, 8)}),
			".data+0x0", "writable data"},
		{"zeroed data", of(exit).with(section{name: ".bss", kind: elf.SHT_NOBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, size: 8}),
			".bss+0x0", "writable data"},
		{"zeroed constants", of(exit).with(section{name: ".rodata", kind: elf.SHT_NOBITS, flags: elf.SHF_ALLOC, size: 8}),
			".rodata+0x0", "writable data"},
		{"addresses to be written at load", of(exit).with(section{name: ".data.rel.ro", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, data: make([]byte, 8)}),
			".data.rel.ro+0x0", "writable data"},
		{"common data", of(exit).symbol(symbol{name: "counter", kind: elf.STT_OBJECT, section: -2}), "COMMON+0x0", `"counter" is data that can be written`},
		{"unwinding tables", of(exit).with(section{name: ".eh_frame", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, data: make([]byte, 8)}),
			".eh_frame+0x0", "neither code nor constants"},
		{"initializers", of(exit).with(section{name: ".init_array", kind: elf.SHT_INIT_ARRAY, flags: elf.SHF_ALLOC, data: make([]byte, 8)}),
			".init_array+0x0", "type SHT_INIT_ARRAY"},
		{"more code", of(exit).with(section{name: ".text.more", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, data: exit}),
			".text.more+0x0", "one section"},
		{"two sections of code", of(exit).with(section{name: ".text", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, data: exit}),
			".text+0x0", "second section"},
		{"thread-local constants", of(exit).with(section{name: ".rodata", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_TLS, data: exit}),
			".rodata+0x0", "SHF_TLS"},
		{"huge alignment", of(exit).with(section{name: ".rodata", kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, data: exit, align: 1 << 40}),
			".rodata+0x0", "alignment"},
		{"no code", &object{machine: elf.EM_BPF}, ".text+0x0", "no code"},
		{"no entry point", of(exit).rename("start"), ".text+0x0", "no function named entrypoint"},
		{"function outside of the code", of(exit).symbol(symbol{name: "f", kind: elf.STT_FUNC, value: 8}), ".text+0x8", `"f" begins outside`},
		{"function between instructions", of(zero, exit).symbol(symbol{name: "f", kind: elf.STT_FUNC, value: 4}), ".text+0x4", `"f" begins outside`},
		{"function inside of lddw", of(lddw, exit).symbol(symbol{name: "f", kind: elf.STT_FUNC, value: 8}), ".text+0x0", "past its function's end"},
		{"code before the first function", of(zero, exit).moved(8), ".text+0x0", "before the first function"},
		{"code cut off", of(exit, []byte{0x95}), ".text+0x8", "code of 9 bytes"},

		{"unknown relocation in code", of(lddw, exit).rel(0, 99), ".text+0x0", "relocation 99"},
		{"unknown relocation in constants", of(exit).constants(make([]byte, 8), 3), ".rodata+0x0", "relocation 3"},
		{"relocation past the end", of(lddw, exit).rel(24, relAddress), ".text+0x18", "outside of its section"},
		{"half a relocation", of(exit, lddw[:8]).rel(8, relAddress), ".text+0x8", "outside of its section"},
		{"relocation between instructions", of(lddw, exit).rel(4, relAddress), ".text+0x4", "outside of its section"},
		{"relocation of a symbol that is not there", of(lddw, exit).reloc(0, 0, relAddress, 77), ".text+0x0", "symbol 78"},
		{"two relocations of one place", of(lddw, exit).rel(0, relAddress).again(), ".text+0x0", "second relocation"},
		{"relocations with addends", of(lddw, exit).rel(0, relAddress).withAddends(), ".rel.text+0x0", "addends"},
		{"address in arithmetic", of(zero, zero, exit).rel(0, relAddress), ".text+0x0: opcode 0xb7", "without an address operand"},
		{"call's relocation on a jump", of(insn(0x05, 0, 0, 0, 0), exit).call(0, "sol_log_"), ".text+0x0: opcode 0x05", "another instruction"},
		{"address of code", of(lddw, exit).reloc(0, 0, relAddress, 0), ".text+0x0", `address of code ("entrypoint")`},
		{"address of nothing", of(lddw, exit).call(0, "table", relAddress), ".text+0x0", `address of undefined symbol "table"`},
		{"address past the constants", of(insn(0x18, 1, 0, 0, 9), insn(0, 0, 0, 0, 0), exit).rel(0, relAddress), ".text+0x0", "outside of .rodata"},
		{"address before the constants", of(insn(0x18, 1, 0, 0, -1), insn(0, 0, 0, 0, -1), exit).rel(0, relAddress), ".text+0x0", "outside of .rodata"},

		{"undefined function", of(outer, exit).call(0, "helper"), ".text+0x0: opcode 0x85", `call of "helper": neither defined nor an allowed syscall`},
		{"syscall that is not allowed", of(outer, exit).call(0, "sol_alloc_free_"), ".text+0x0: opcode 0x85", `call of "sol_alloc_free_"`},
		{"call of a constant", of(outer, exit).rel(0, relCall), ".text+0x0: opcode 0x85", "no code"},
		{"call that is bound to nothing", of(insn(0x85, 0, 0, 0, 1), exit), ".text+0x0: opcode 0x85", "without a target"},
		{"call into a function", of(insn(0x85, 0, 1, 0, 0), zero, exit), ".text+0x0: opcode 0x85", "where no function begins"},
		{"call before the code", of(insn(0x85, 0, 1, 0, -3), exit), ".text+0x0: opcode 0x85", "where no function begins"},
		{"call of itself as v0 cannot say it", of(outer, exit), ".text+0x0: opcode 0x85", "where no function begins"},

		{"jump before the code", jumps(-2), ".text+0x0: opcode 0x05", "out of its function"},
		{"jump past the code", jumps(3), ".text+0x0: opcode 0x05", "out of its function"},
		{"jump into lddw", jumps(1), ".text+0x0: opcode 0x05", "out of its function"},
		{"jump into another function", of(insn(0x05, 0, 0, 0, 0), exit).symbol(symbol{name: "f", kind: elf.STT_FUNC, value: 8}), ".text+0x0: opcode 0x05", "out of its function"},
		{"code that ends nowhere", of(exit, zero), ".text+0x8: opcode 0xb7", "past its function's end"},
		{"function that runs into the next", of(zero, exit).symbol(symbol{name: "f", kind: elf.STT_FUNC, value: 8}), ".text+0x0: opcode 0xb7", "past its function's end"},
		{"half an lddw", of(exit, lddw[:8]), ".text+0x8: opcode 0x18", "half an lddw"},
		{"lddw of a map", of(insn(0x18, 1, 1, 0, 0), insn(0, 0, 0, 0, 0), exit), ".text+0x0: opcode 0x18", "not a number"},
		{"lddw whose second half is code", of(insn(0x18, 1, 0, 0, 0), exit, exit), ".text+0x0: opcode 0x18", "not a number"},

		{"jump table", of(insn(0x0d, 1, 0, 0, 0), exit), ".text+0x0: opcode 0x0d", "jump tables"},
		{"call through a register", of(insn(0x8d, 0, 0, 0, 1), exit), ".text+0x0: opcode 0x8d", "calls through pointers"},
		{"atomic", of(insn(0xdb, 1, 2, 0, 0), exit), ".text+0x0: opcode 0xdb", "atomic"},
		{"load with sign", of(insn(0x91, 1, 2, 0, 0), exit), ".text+0x0: opcode 0x91", "load with sign"},
		{"packet load", of(insn(0x20, 0, 0, 0, 0), exit), ".text+0x0: opcode 0x20", "does not have"},
		{"subtraction of a number", of(insn(0x17, 1, 0, 0, 1), exit), ".text+0x0: opcode 0x17", "read differently"},
		{"signed division", of(insn(0x3f, 1, 2, 1, 0), exit), ".text+0x0: opcode 0x3f", "later eBPF"},
		{"move with sign", of(insn(0xbf, 1, 2, 8, 0), exit), ".text+0x0: opcode 0xbf", "later eBPF"},
		{"byte swap of v4", of(insn(0xd7, 1, 0, 0, 64), exit), ".text+0x0: opcode 0xd7", "not known"},
		{"byte swap of 8 bits", of(insn(0xdc, 1, 0, 0, 8), exit), ".text+0x0: opcode 0xdc", "8 bits"},
		{"division by zero", of(insn(0x37, 1, 0, 0, 0), exit), ".text+0x0: opcode 0x37", "division by zero"},
		{"rest of a division by zero", of(insn(0x97, 1, 0, 0, 0), exit), ".text+0x0: opcode 0x97", "division by zero"},
		{"shift by 64", of(insn(0x67, 1, 0, 0, 64), exit), ".text+0x0: opcode 0x67", "shift by 64"},
		{"register 11", of(insn(0xbf, 11, 0, 0, 0), exit), ".text+0x0: opcode 0xbf", "registers 11"},

		{"stack below the frame", of(insn(0x7b, 10, 1, -4104, 0), exit), ".text+0x0: opcode 0x7b", "frame has the 4096 bytes"},
		{"stack across the top", of(insn(0x79, 1, 10, -4, 0), exit), ".text+0x0: opcode 0x79", "frame has the 4096 bytes"},
		{"stack above the frame", of(insn(0x71, 1, 10, 0, 0), exit), ".text+0x0: opcode 0x71", "frame has the 4096 bytes"},
		{"address below the frame", of(insn(0xbf, 1, 10, 0, 0), insn(0x07, 1, 0, 0, -4097), exit), ".text+0x8: opcode 0x07", "frame has the 4096 bytes"},
		{"address above the frame", of(insn(0xbf, 1, 10, 0, 0), insn(0x07, 1, 0, 0, 8), exit), ".text+0x8: opcode 0x07", "frame has the 4096 bytes"},
		{"frame pointer kept", of(insn(0xbf, 1, 10, 0, 0), exit), ".text+0x0: opcode 0xbf", "cannot be followed"},
		{"frame pointer kept at the end", of(exit, insn(0xbf, 1, 10, 0, 0)), ".text+0x8: opcode 0xbf", "out of the frame"},
		{"frame pointer stored", of(insn(0x7b, 1, 10, 0, 0), exit), ".text+0x0: opcode 0x7b", "cannot be followed"},
		{"arithmetic on the frame pointer", of(insn(0x1f, 1, 10, 0, 0), exit), ".text+0x0: opcode 0x1f", "arithmetic on the frame pointer"},
		{"frame pointer moved", of(insn(0x07, 10, 0, 0, -8), exit), ".text+0x0: opcode 0x07", "write to the frame pointer"},
		{"frame pointer loaded", of(insn(0x79, 10, 1, 0, 0), exit), ".text+0x0: opcode 0x79", "write to the frame pointer"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, v := range []Version{V0, V3} {
				_, err := Link(c.object.bytes(), v)
				var refusal *Refusal
				if !errors.As(err, &refusal) {
					t.Fatalf("v%d: %v is not a refusal", v, err)
				}
				if text := err.Error(); !strings.HasPrefix(text, c.at) || !strings.Contains(text, c.why) {
					t.Errorf("v%d: %q, want %q … %q", v, text, c.at, c.why)
				}
			}
		})
	}
}

func (o *object) with(s section) *object {
	o.sections = append(o.sections, s)
	return o
}

func (o *object) symbol(s symbol) *object {
	o.symbols = append(o.symbols, s)
	return o
}

func (o *object) rename(name string) *object {
	o.symbols[0].name = name
	return o
}

func (o *object) moved(value uint64) *object {
	o.symbols[0].value = value
	return o
}

// rel relocates a place of the code against 8 bytes of constants.
func (o *object) rel(offset uint64, kind uint32) *object {
	_, s := o.rodata(".rodata", make([]byte, 8))
	return o.reloc(0, offset, kind, s)
}

// constants adds some that are relocated at their begin against themselves.
func (o *object) constants(data []byte, kind uint32) *object {
	n, s := o.rodata(".rodata", data)
	return o.reloc(n, 0, kind, s)
}

// call relocates a place of the code against an undefined symbol.
func (o *object) call(offset uint64, name string, kind ...uint32) *object {
	return o.reloc(0, offset, append(kind, relCall)[0], o.undefined(name))
}

func (o *object) again() *object {
	o.sections[0].relocs = append(o.sections[0].relocs, o.sections[0].relocs[0])
	return o
}

func (o *object) withAddends() *object {
	o.sections[0].rela = true
	return o
}

// TestEvery32BitOpcode: each of the arithmetic and jump classes is refused as what it is. (0xdc swaps bytes; all versions
// agree on it.)
func TestEvery32BitOpcode(t *testing.T) {
	t.Parallel()
	for op := range 256 {
		class := op & 7
		if class != 4 && class != 6 || op == opBig {
			continue
		}
		for _, imm := range []int32{0, 1, 64} {
			_, err := Link(of(zero, insn(uint8(op), 1, 0, 0, imm), exit).bytes(), V0)
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Opcode != uint8(op) || refusal.Offset != 8 || !strings.Contains(err.Error(), "32-bit") {
				t.Errorf("opcode %#02x: %v", op, err)
			}
		}
	}
}

// TestOtherObjects: what is no object for this machine.
func TestOtherObjects(t *testing.T) {
	t.Parallel()
	good := of(exit).bytes()
	amd := of(exit)
	amd.machine = elf.EM_X86_64
	executable := bytes.Clone(good)
	executable[16] = byte(elf.ET_EXEC)
	for name, b := range map[string][]byte{"nothing": nil, "text": []byte("hello"), "another machine": amd.bytes(), "linked": executable,
		"cut off": good[:len(good)-1], "too long": append(bytes.Clone(good), make([]byte, MaxObject)...)} {
		if _, err := Link(b, V0); err == nil {
			t.Errorf("%s was linked", name)
		}
	}
	if _, err := Link(good, 1); err == nil {
		t.Error("linked as v1")
	}
}

// whole is a program with everything that is taken: constants that point at constants, calls of both kinds.
func whole() *object {
	o := of(lddw, outer, insn(0x85, 0, 1, 0, 4), insn(0xbf, 2, 10, 0, 0), insn(0x07, 2, 0, 0, -4096), insn(0x7b, 10, 1, -8, 0), exit, // entrypoint
		insn(0x55, 0, 0, 2, 0), outer, outer, exit) // f
	text := o.sections[0].data
	binary.LittleEndian.PutUint32(text[4:], 5) // the addend
	o.symbols = append(o.symbols, symbol{name: "f", kind: elf.STT_FUNC, value: 64})
	_, strings := o.rodata(".rodata.str", []byte("0123456789"))
	table, self := o.rodata(".rodata", make([]byte, 24))
	o.sections[table].data[8] = 16
	o.reloc(0, 0, relAddress, strings)
	o.call(16, "sol_log_")
	o.call(72, "__bpf_trap")
	o.call(80, "sol_log_64_")
	return o.reloc(table, 8, relData, self)
}

// TestV0 checks the addresses, the calls and the tables of a linked program, read by another reader.
func TestV0(t *testing.T) {
	t.Parallel()
	out, err := Link(whole().bytes(), V0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_DYN || f.Machine != elf.EM_BPF || f.Entry != 64 {
		t.Errorf("%v %v, entry %#x", f.Type, f.Machine, f.Entry)
	}
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	rodata, err := f.Section(".rodata").Data()
	if err != nil {
		t.Fatal(err)
	}
	at := f.Section(".rodata").Offset
	le := binary.LittleEndian
	if got, want := uint64(le.Uint32(text[4:]))|uint64(le.Uint32(text[12:]))<<32, uint64(region)+at+8+5; got != want {
		t.Errorf("address in code %#x, want %#x", got, want)
	}
	if got, want := le.Uint64(rodata[24+8:]), uint64(region)+at+24+16; got != want {
		t.Errorf("address in constants %#x, want %#x", got, want)
	}
	if !bytes.Equal(text[16:24], insn(0x85, 0, 0, 0, -1)) || !bytes.Equal(text[24:32], insn(0x85, 0, 1, 0, 4)) {
		t.Errorf("calls % x", text[16:32])
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := f.Section(".rel.dyn").Data()
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for ; len(rel) > 0; rel = rel[16:] {
		if le.Uint32(rel[8:]) != relCall {
			t.Errorf("relocation %d", le.Uint32(rel[8:]))
		}
		calls = append(calls, symbols[le.Uint32(rel[12:])-1].Name, string('0'+rune((le.Uint64(rel)-64)/8)))
	}
	if got := strings.Join(calls, " "); got != "sol_log_ 2 abort 9 sol_log_64_ :" {
		t.Errorf("syscalls %s", got)
	}
}

// TestV3: constants at 0, code at 1<<32, syscalls by hash.
func TestV3(t *testing.T) {
	t.Parallel()
	out, err := Link(whole().bytes(), V3)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Progs) != 2 || f.Progs[0].Vaddr != 0 || f.Progs[1].Vaddr != region || f.Entry != region {
		t.Fatalf("%+v, entry %#x", f.Progs, f.Entry)
	}
	text := make([]byte, f.Progs[1].Filesz)
	if _, err := f.Progs[1].ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if got := uint64(le.Uint32(text[4:])) | uint64(le.Uint32(text[12:]))<<32; got != 8+5 {
		t.Errorf("address in code %#x", got)
	}
	if got := le.Uint32(text[20:]); got != syscallHash("sol_log_") || text[17] != 0 {
		t.Errorf("syscall %#x", got)
	}
}

// TestSyscallHash: numbers that the runtime's own sources list.
func TestSyscallHash(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint32{"abort": 0xb6fc1a11, "sol_panic_": 0x686093bb, "sol_memcpy_": 0x717cc4a3, "sol_log_": 0x207559bd,
		"sol_sha256": 0x11f49d86, "sol_invoke_signed_c": 0xa22b9c85} {
		if got := syscallHash(name); got != want {
			t.Errorf("%s: %#x, want %#x", name, got, want)
		}
	}
}

func TestSameBytes(t *testing.T) {
	t.Parallel()
	for _, v := range []Version{V0, V3} {
		one, err := Link(whole().bytes(), v)
		if err != nil {
			t.Fatal(err)
		}
		two, err := Link(whole().bytes(), v)
		if err != nil || !bytes.Equal(one, two) {
			t.Errorf("v%d: linked twice, two results, %v", v, err)
		}
	}
}

// FuzzLink: whatever the object, an error or a program that can be read, the same each time.
func FuzzLink(f *testing.F) {
	f.Add(whole().bytes())
	f.Add(of(exit).bytes())
	f.Add(of(outer, exit).call(0, "sol_log_").bytes())
	f.Add(of(exit).constants(make([]byte, 16), relData).bytes())
	f.Fuzz(func(t *testing.T, object []byte) {
		for _, v := range []Version{V0, V3} {
			out, err := Link(object, v)
			if err != nil {
				continue
			}
			again, err := Link(object, v)
			if err != nil || !bytes.Equal(out, again) {
				t.Fatalf("v%d: linked twice, two results, %v", v, err)
			}
			if _, err := elf.NewFile(bytes.NewReader(out)); err != nil {
				t.Fatalf("v%d: cannot be read: %v", v, err)
			}
		}
	})
}
