package ptx_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/device/cuda/ptx"
)

// form is an instruction as NVIDIA's assembler takes it (PTX ISA 8.x, section 9.7): its operands, and the first version
// and target that have it. Operands are w (written), r (read; a register or a number), n (a number), @ (an address with
// a number of bytes that a vector of so many bytes lies on), each with the bits of a register; {…} is a vector of so
// many. L is a label, P a parameter.
type form struct {
	operands string
	version  int // major·10 + minor
	target   int
}

var forms = map[string]form{
	"ret": {}, "bar.sync": {operands: "n"}, "bra": {operands: "L"},
	"ld.param.u32": {operands: "w32 P4"}, "ld.param.u64": {operands: "w64 P8"},
	"cvta.to.global.u64": {"w64 r64", 20, 20}, "cvt.u64.u32": {operands: "w64 r32"},
	"mov.u32": {operands: "w32 r32"}, "mov.s32": {operands: "w32 r32"}, "mov.u64": {operands: "w64 r64"},
	"mov.b64": {operands: "{2w32} r64"},
	"add.u32": {operands: "w32 r32 r32"}, "sub.u32": {operands: "w32 r32 r32"}, "min.u32": {operands: "w32 r32 r32"},
	"mul.lo.u32": {operands: "w32 r32 r32"}, "div.u32": {operands: "w32 r32 r32"},
	"and.b32": {operands: "w32 r32 r32"}, "or.b32": {operands: "w32 r32 r32"}, "xor.b32": {operands: "w32 r32 r32"},
	"shl.b32": {operands: "w32 r32 r32"}, "shr.u32": {operands: "w32 r32 r32"},
	"add.u64": {operands: "w64 r64 r64"}, "xor.b64": {operands: "w64 r64 r64"}, "mul.lo.u64": {operands: "w64 r64 r64"},
	"mul.hi.u64": {operands: "w64 r64 r64"}, "shl.b64": {operands: "w64 r64 r32"}, "shr.u64": {operands: "w64 r64 r32"},
	"mul.wide.u32": {operands: "w64 r32 r32"}, "mad.lo.u32": {operands: "w32 r32 r32 r32"},
	"mad.wide.u32": {operands: "w64 r32 r32 r64"},
	"setp.eq.u32":  {operands: "w1 r32 r32"}, "setp.ge.u32": {operands: "w1 r32 r32"},
	"setp.gt.u32": {operands: "w1 r32 r32"}, "setp.lt.u32": {operands: "w1 r32 r32"},
	"selp.b32":       {operands: "w32 r32 r32 r1"},
	"prmt.b32":       {"w32 r32 r32 n", 20, 20},
	"shf.l.wrap.b32": {"w32 r32 r32 r32", 31, 32}, "shf.r.wrap.b32": {"w32 r32 r32 r32", 31, 32},
	"lop3.b32":      {"w32 r32 r32 r32 n", 43, 50},
	"ld.global.u64": {operands: "w64 @64:8"}, "ld.global.v4.u32": {operands: "{4w32} @64:16"},
	"ld.global.nc.v4.u32": {"{4w32} @64:16", 31, 32}, "ld.global.nc.v2.u64": {"{2w64} @64:16", 31, 32},
	"ld.shared.u32": {operands: "w32 @32:4"}, "ld.shared.v4.u32": {operands: "{4w32} @32:16"},
	"st.global.u64": {operands: "@64:8 r64"}, "st.global.v2.s32": {operands: "@64:8 {2r32}"},
	"st.global.v4.s32": {operands: "@64:16 {4r32}"}, "st.global.v4.u32": {operands: "@64:16 {4r32}"},
	"st.shared.u32":                                   {operands: "@32:4 r32"},
	"dp4a.s32.s32":                                    {"w32 r32 r32 r32", 50, 61},
	"cp.async.commit_group":                           {"", 70, 80},
	"cp.async.wait_group":                             {"n", 70, 80},
	"cp.async.cg.shared.global":                       {"@32:16 @64:16 n", 70, 80},
	"ldmatrix.sync.aligned.m8n8.x4.shared.b16":        {"{4w32} @32:16", 65, 75},
	"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": {"{4w32} {4r32} {2r32} {4r32}", 70, 80},
}

var special = []string{"%tid.x", "%ctaid.x"}

// entry is one kernel of a text.
type entry struct {
	name            string
	params          map[string]int // bytes
	order           []string
	threads, blocks int
	shared          int
	bits            map[string]int // of registers; 32 for the address of shared memory
	read, written   map[string]bool
	labels          map[string]bool
	branches        []string
	version, target int
}

var (
	entryLine    = regexp.MustCompile(`^\.visible \.entry (\w+)\($`)
	paramLine    = regexp.MustCompile(`^\.param \.u(32|64) (p_\w+),?$`)
	maxLine      = regexp.MustCompile(`^\.maxntid (\d+), 1, 1$`)
	minLine      = regexp.MustCompile(`^\.minnctapersm (\d+)$`)
	regLine      = regexp.MustCompile(`^\.reg \.(u32|s32|u64|pred) ([\w, ]+);$`)
	sharedLine   = regexp.MustCompile(`^\.shared \.align \d+ \.b8 (\w+)\[(\d+)\];$`)
	labelLine    = regexp.MustCompile(`^([A-Z]+):$`)
	instruction  = regexp.MustCompile(`^(?:@(\w+) )?([\w.]+)(?: (.*))?;$`)
	addressOf    = regexp.MustCompile(`^\[(\w+)(?:\+(\d+))?\]$`)
	operandSplit = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|[^,\s]+`)
)

// assemble checks a module as an assembler does and returns its kernels, or the first error.
func assemble(text string) (list []*entry, err error) {
	var e *entry
	version, target := 0, 0
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		fail := func(format string, args ...any) ([]*entry, error) {
			return nil, fmt.Errorf("line %d, %s: %s", n+1, line, fmt.Sprintf(format, args...))
		}
		switch m := entryLine.FindStringSubmatch(line); {
		case line == "" || line == ")" || line == "{" || line == ".address_size 64":
		case strings.HasPrefix(line, ".version "):
			version, _ = strconv.Atoi(strings.ReplaceAll(strings.TrimPrefix(line, ".version "), ".", ""))
		case strings.HasPrefix(line, ".target sm_"):
			target, _ = strconv.Atoi(strings.TrimPrefix(line, ".target sm_"))
		case m != nil:
			e = &entry{name: m[1], params: map[string]int{}, bits: map[string]int{}, read: map[string]bool{},
				written: map[string]bool{}, labels: map[string]bool{}, version: version, target: target}
			list = append(list, e)
		case e == nil:
			return fail("outside of an entry")
		case line == "}":
			if why := e.end(); why != "" {
				return fail("%s", why)
			}
			e = nil
		default:
			if why := e.line(line); why != "" {
				return fail("%s", why)
			}
		}
	}
	return list, nil
}

// line takes a line of an entry. It returns the reason if it is refused.
func (e *entry) line(line string) string {
	declare := func(name string, bits int) string {
		if _, twice := e.bits[name]; twice {
			return name + " is declared twice"
		}
		e.bits[name] = bits
		return ""
	}
	if m := paramLine.FindStringSubmatch(line); m != nil {
		bits, _ := strconv.Atoi(m[1])
		e.params[m[2]] = bits / 8
		e.order = append(e.order, m[2])
		return ""
	}
	if m := maxLine.FindStringSubmatch(line); m != nil {
		e.threads, _ = strconv.Atoi(m[1])
		return ""
	}
	if m := minLine.FindStringSubmatch(line); m != nil {
		e.blocks, _ = strconv.Atoi(m[1])
		return ""
	}
	if m := regLine.FindStringSubmatch(line); m != nil {
		for _, name := range strings.Split(m[2], ", ") {
			if why := declare(name, map[string]int{"u32": 32, "s32": 32, "u64": 64, "pred": 1}[m[1]]); why != "" {
				return why
			}
		}
		return ""
	}
	if m := sharedLine.FindStringSubmatch(line); m != nil {
		e.shared, _ = strconv.Atoi(m[2])
		e.read[m[1]], e.written[m[1]] = true, true
		return declare(m[1], 32)
	}
	if m := labelLine.FindStringSubmatch(line); m != nil {
		if e.labels[m[1]] {
			return "a label twice"
		}
		e.labels[m[1]] = true
		return ""
	}
	m := instruction.FindStringSubmatch(line)
	if m == nil {
		return "not an instruction"
	}
	return e.instruction(m[1], m[2], operandSplit.FindAllString(m[3], -1))
}

func (e *entry) instruction(guard, opcode string, operands []string) string {
	f, known := forms[opcode]
	switch want := strings.Fields(f.operands); {
	case !known:
		return "no such instruction"
	case f.version > e.version || f.target > e.target:
		return fmt.Sprintf("needs version %d and sm_%d, has %d and sm_%d", f.version, f.target, e.version, e.target)
	case len(operands) != len(want):
		return fmt.Sprintf("%d operands, want %d", len(operands), len(want))
	default:
		if guard != "" {
			if why := e.register(guard, 'r', 1); why != "" {
				return why
			}
		}
		// Operands are read before any is written.
		for _, pass := range "rw" {
			for i, o := range operands {
				if why := e.operand(o, want[i], pass); why != "" {
					return fmt.Sprintf("operand %d: %s", i, why)
				}
			}
		}
	}
	return ""
}

// operand checks one operand against its form. A pass looks at the read, or the written ones.
func (e *entry) operand(o, want string, pass rune) string {
	number := func(s string) bool { _, err := strconv.ParseUint(s, 0, 64); return err == nil }
	switch want[0] {
	case 'L':
		if pass == 'r' {
			e.branches = append(e.branches, o)
		}
		return ""
	case 'P':
		size, _ := strconv.Atoi(want[1:])
		if name := strings.Trim(o, "[]"); e.params[name] != size {
			return fmt.Sprintf("parameter %s of %d bytes, want %d", name, e.params[name], size)
		}
		return ""
	case 'n':
		if !number(o) {
			return "not a number"
		}
		return ""
	case '@':
		m := addressOf.FindStringSubmatch(o)
		bits, size, _ := strings.Cut(want[1:], ":")
		wide, _ := strconv.Atoi(bits)
		if m == nil {
			return "not an address"
		}
		aligned, _ := strconv.Atoi(size)
		if at, _ := strconv.Atoi(m[2]); at%aligned != 0 {
			return fmt.Sprintf("%d bytes from it, want a multiple of %d", at, aligned)
		}
		return e.register(m[1], 'r', wide)
	case '{':
		list := strings.Split(strings.Trim(o, "{}"), ", ")
		want = strings.Trim(want, "{}")
		if o[0] != '{' || len(list) != int(want[0]-'0') {
			return fmt.Sprintf("a vector of %d, want %c", len(list), want[0])
		}
		for _, r := range list {
			if why := e.operand(r, want[1:], pass); why != "" {
				return why
			}
		}
		return ""
	}
	if rune(want[0]) != pass || want[0] == 'r' && number(o) || want[0] == 'r' && slices.Contains(special, o) {
		return ""
	}
	bits, _ := strconv.Atoi(want[1:])
	return e.register(o, rune(want[0]), bits)
}

func (e *entry) register(name string, how rune, bits int) string {
	switch has, declared := e.bits[name]; {
	case !declared:
		return name + " is not declared"
	case has != bits:
		return fmt.Sprintf("%s has %d bits, want %d", name, has, bits)
	case how == 'w':
		e.written[name] = true
	case !e.written[name]:
		return name + " is read before it is written"
	default:
		e.read[name] = true
	}
	return ""
}

// end checks an entry that ended.
func (e *entry) end() string {
	for _, to := range e.branches {
		if !e.labels[to] {
			return "no label " + to
		}
	}
	for name := range e.bits {
		if !e.written[name] || !e.read[name] {
			return fmt.Sprintf("register %s is written %v, read %v", name, e.written[name], e.read[name])
		}
	}
	return ""
}

// TestAssembles: of each module every instruction exists for its target and has operands of its sizes, every register is
// declared, written before it is read, and used, every branch leads somewhere.
func TestAssembles(t *testing.T) {
	t.Parallel()
	for _, capability := range capabilities {
		text, err := ptx.Module(capability)
		if err != nil {
			t.Fatal(err)
		}
		list, err := assemble(text)
		if err != nil {
			t.Errorf("%d: %v", capability, err)
			continue
		}
		kernels := ptx.Kernels()
		if len(list) != len(kernels) {
			t.Errorf("%d: %d entries, want %d", capability, len(list), len(kernels))
			continue
		}
		for i, e := range list {
			checkLaunch(t, capability, e, kernels[i])
		}
	}
}

// checkLaunch compares an entry with the kernel that callers launch, and its needs with the smallest multiprocessor of
// its target: of 7.5 (64 KiB of shared memory, 1,024 threads) and 8.6 (100 KiB, of which each block takes one more).
func checkLaunch(t *testing.T, capability uint32, e *entry, k ptx.Kernel) {
	t.Helper()
	memory, each, threads := 64<<10, 0, 1024
	if capability >= 80 {
		memory, each, threads = 100<<10, 1<<10, 1536
	}
	if e.name != k.Name || e.threads != k.Threads || len(e.order) != len(k.Params) {
		t.Errorf("%d: entry %s of %d threads and %d parameters, want %+v", capability, e.name, e.threads, len(e.order), k)
		return
	}
	for i, p := range k.Params {
		if e.order[i] != "p_"+p.Name || e.params[e.order[i]] != p.Kind.Size() {
			t.Errorf("%d, %s: parameter %d is %s of %d bytes, want %+v", capability, e.name, i, e.order[i],
				e.params[e.order[i]], p)
		}
	}
	if need := e.blocks * (e.shared + each); e.shared > 48<<10 || need > memory {
		t.Errorf("%d, %s: %d blocks with %d bytes of shared memory, there are %d", capability, e.name, e.blocks, e.shared, memory)
	}
	if e.blocks < 1 || e.blocks*e.threads > threads {
		t.Errorf("%d, %s: %d blocks of %d threads, there are %d", capability, e.name, e.blocks, e.threads, threads)
	}
}

// TestAssemblerRefuses: the checks of TestAssembles find mistakes. Each replaces the first place in a module of 8.0.
func TestAssemblerRefuses(t *testing.T) {
	t.Parallel()
	text, err := ptx.Module(80)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"an older target":         {".target sm_80", ".target sm_75", "needs version 70 and sm_80"},
		"an older version":        {".version 7.0", ".version 6.4", "needs version"},
		"another instruction":     {"add.u32", "add.f32", "no such instruction"},
		"no register":             {".reg .u64 at;", "", "at is not declared"},
		"a register twice":        {".reg .u64 at;", ".reg .u64 at, at;", "declared twice"},
		"a register too many":     {".reg .u64 at;", ".reg .u64 at, none;", "register none is written false"},
		"a register of 32 bits":   {".reg .u64 at;", ".reg .u32 at;", "at has 32 bits, want 64"},
		"nothing written":         {"mov.u32 i, %tid.x;", "", "i is read before it is written"},
		"an operand less":         {"xor.b32 x12, x12, x0;", "xor.b32 x12, x12;", "2 operands, want 3"},
		"a parameter of 64 bits":  {".param .u32 p_total", ".param .u64 p_total", "parameter p_total of 8 bytes"},
		"a vector of three":       {"{x0, x1, x2, x3}", "{x0, x1, x2}", "a vector of 3"},
		"an address between":      {"[at+16]", "[at+8]", "want a multiple of 16"},
		"no label":                {"BLOCK:", "", "no label BLOCK"},
		"a label twice":           {"BLOCK:", "BLOCK:\nBLOCK:", "a label twice"},
		"a guard of 32 bits":      {"@beyond ret;", "@i ret;", "i has 32 bits, want 1"},
		"a permutation by itself": {", 0x1032;", ", x1;", "not a number"},
	} {
		if _, err := assemble(strings.Replace(text, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestNothingBeyond: threads of a block that have no work write nothing, before or behind the results.
func TestNothingBeyond(t *testing.T) {
	const guard = 512 // bytes on each side
	each(t, 2, func(b bench, r *rand.Rand) {
		key := words(hash(r))
		ends := b.with(make([]byte, 64*8*3))
		data := b.with(make([]byte, 4*64*128))
		cells := b.with(make([]byte, 32*10))
		for _, c := range []struct {
			k    ptx.Kernel
			size int
			args func(out uint64) []uint64
		}{
			{ptx.Rows, 3 * 64, func(out uint64) []uint64 { return append(append([]uint64{out}, key...), 0, 5, 1, 3) }},
			{ptx.Fill, 3 * 32, func(out uint64) []uint64 { return append(append([]uint64{out}, key...), 0, 3, 2) }},
			{ptx.Walk, 3 * 8, func(out uint64) []uint64 { return []uint64{cells, out, 7, 10, 0, 3, 4, 1} }},
			{ptx.Groups, 3 * 32, func(out uint64) []uint64 { return []uint64{ends, out, 3} }},
			{ptx.Tiles, 1 * 32, func(out uint64) []uint64 { return []uint64{data, out, 128, 1, 1} }},
		} {
			canary := bytes.Repeat([]byte{0xa5}, guard+c.size+guard)
			at := b.with(canary)
			b.launch(c.k, 1, c.args(at+guard)...)
			got := b.read(at, len(canary))
			if !bytes.Equal(got[:guard], canary[:guard]) || !bytes.Equal(got[guard+c.size:], canary[:guard]) {
				b.t.Errorf("%s writes beyond its %d bytes", c.k.Name, c.size)
			}
			for i := guard; i < guard+c.size; i += 8 {
				if bytes.Equal(got[i:i+8], canary[:8]) {
					b.t.Errorf("%s leaves bytes %d to %d of %d unwritten", c.k.Name, i-guard, i-guard+8, c.size)
				}
			}
		}
	})
}
