package ptxsim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is PTX text, read.
type Module struct {
	Version, Target string
	entries         map[string]*entry
}

// entry is one kernel.
type entry struct {
	name    string
	threads int // at most, from .maxntid
	params  []param
	regs    map[string]register
	kinds   []regKind // by register number
	shared  map[string]uint64
	size    uint64 // of shared memory, bytes
	labels  map[string]int
	code    []instruction
}

type param struct {
	name string
	wide bool
}

type regKind uint8

const (
	predicate regKind = iota
	word              // 32 bits
	double            // 64 bits
)

type register struct {
	number int
	kind   regKind
}

// instruction is one instruction, ready to run.
type instruction struct {
	text   string
	guard  int // number of a predicate; −1 if none
	not    bool
	target int // of a branch
	flow   flow
	run    func(w *warp, mask uint32) error
}

type flow uint8

const (
	next flow = iota
	branch
	leave
	barrier
)

// sharedBase is where shared memory begins: not at 0, so that an offset taken for an address is found.
const sharedBase = 1024

var (
	comment    = regexp.MustCompile(`//[^\n]*`)
	header     = regexp.MustCompile(`^\s*\.version (\d+\.\d+)\s+\.target (sm_\d+)\s+\.address_size 64\s`)
	entryBegin = regexp.MustCompile(
		`^\s*\.visible \.entry (\w+)\(([^)]*)\)\s*\.maxntid (\d+), 1, 1\s+(?:\.minnctapersm \d+\s+)?\{`)
	paramText  = regexp.MustCompile(`^\.param \.(u32|u64) (\w+)$`)
	regText    = regexp.MustCompile(`^\.reg \.(pred|b32|u32|s32|b64|u64|s64) (.+)$`)
	sharedText = regexp.MustCompile(`^\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]$`)
	labelText  = regexp.MustCompile(`^([A-Za-z_]\w*):`)
	nameText   = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	guardText  = regexp.MustCompile(`^@(!?)(\w+)\s+`)
)

// Parse reads a module.
func Parse(text string) (*Module, error) {
	text = comment.ReplaceAllString(text, "")
	h := header.FindStringSubmatch(text)
	if h == nil {
		return nil, fmt.Errorf("not a module: starts with %.60q", text)
	}
	m := &Module{Version: h[1], Target: h[2], entries: map[string]*entry{}}
	text = text[len(h[0]):]
	for strings.TrimSpace(text) != "" {
		begin := entryBegin.FindStringSubmatch(text)
		if begin == nil {
			return nil, fmt.Errorf("not an entry: %.60q", strings.TrimSpace(text))
		}
		text = text[len(begin[0]):]
		end := closing(text)
		if end < 0 {
			return nil, fmt.Errorf("entry %s does not end", begin[1])
		}
		e, err := parseEntry(begin[1], begin[2], begin[3], text[:end])
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", begin[1], err)
		}
		if m.entries[e.name] != nil {
			return nil, fmt.Errorf("entry %s is there twice", e.name)
		}
		m.entries[e.name] = e
		text = text[end+1:]
	}
	return m, nil
}

// closing is where the brace that ends a body is.
func closing(text string) int {
	depth := 0
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

func parseEntry(name, params, threads, body string) (*entry, error) {
	e := &entry{name: name, regs: map[string]register{}, shared: map[string]uint64{}, labels: map[string]int{}}
	var err error
	if e.threads, err = strconv.Atoi(threads); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(params, ",") {
		p := paramText.FindStringSubmatch(strings.TrimSpace(text))
		if p == nil {
			return nil, fmt.Errorf("not a parameter: %q", text)
		}
		e.params = append(e.params, param{p[2], p[1] == "u64"})
	}
	var statements []string
	for {
		body = strings.TrimSpace(body)
		if body == "" {
			break
		}
		if l := labelText.FindStringSubmatch(body); l != nil {
			if _, twice := e.labels[l[1]]; twice {
				return nil, fmt.Errorf("label %s is there twice", l[1])
			}
			e.labels[l[1]] = len(statements)
			body = body[len(l[0]):]
			continue
		}
		text, rest, ok := strings.Cut(body, ";")
		if !ok {
			return nil, fmt.Errorf("a statement does not end: %.60q", body)
		}
		body = rest
		if strings.HasPrefix(text, ".") {
			if err := e.declare(text); err != nil {
				return nil, err
			}
			continue
		}
		statements = append(statements, text)
	}
	for _, text := range statements { // after all labels are known
		in, err := e.compile(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		e.code = append(e.code, in)
	}
	for l, at := range e.labels {
		if at >= len(e.code) {
			return nil, fmt.Errorf("label %s is behind the last instruction", l)
		}
	}
	return e, nil
}

// declare reads the declaration of registers or of shared memory.
func (e *entry) declare(text string) error {
	if r := regText.FindStringSubmatch(text); r != nil {
		kind := word
		switch {
		case r[1] == "pred":
			kind = predicate
		case strings.HasSuffix(r[1], "64"):
			kind = double
		}
		for _, name := range strings.Split(r[2], ",") {
			name = strings.TrimSpace(name)
			if _, twice := e.regs[name]; twice || !nameText.MatchString(name) {
				return fmt.Errorf("register %q is there twice or is no name", name)
			}
			e.regs[name] = register{len(e.kinds), kind}
			e.kinds = append(e.kinds, kind)
		}
		return nil
	}
	if s := sharedText.FindStringSubmatch(text); s != nil {
		align, err := strconv.ParseUint(s[1], 10, 16)
		if err != nil || align == 0 || sharedBase%align != 0 {
			return fmt.Errorf("alignment of %q", text)
		}
		size, err := strconv.ParseUint(s[3], 10, 32)
		if err != nil {
			return err
		}
		e.size = (e.size + align - 1) / align * align
		e.shared[s[2]] = sharedBase + e.size
		e.size += size
		if e.size > 48<<10 {
			return fmt.Errorf("%d bytes of shared memory, 48 KiB can be declared", e.size)
		}
		return nil
	}
	return fmt.Errorf("unknown declaration %q", text)
}

// split cuts operands at the commas that are not in braces.
func split(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(text[from:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

// compile reads one instruction: its guard, its opcode, which must be one of those known, and its operands.
func (e *entry) compile(text string) (instruction, error) {
	in := instruction{text: text, guard: -1}
	if g := guardText.FindStringSubmatch(text); g != nil {
		r, ok := e.regs[g[2]]
		if !ok || r.kind != predicate {
			return in, fmt.Errorf("%s is no predicate", g[2])
		}
		in.guard, in.not = r.number, g[1] == "!"
		text = text[len(g[0]):]
	}
	opcode, rest, _ := strings.Cut(text, " ")
	operands := split(rest)
	switch opcode {
	case "ret":
		in.flow = leave
		return in, arity(operands, 0)
	case "bar.sync":
		in.flow = barrier
		if !slices.Equal(operands, []string{"0"}) {
			return in, fmt.Errorf("barrier %q", rest)
		}
		return in, nil
	case "bra":
		in.flow = branch
		if err := arity(operands, 1); err != nil {
			return in, err
		}
		var ok bool
		if in.target, ok = e.labels[operands[0]]; !ok {
			return in, fmt.Errorf("no label %s", operands[0])
		}
		return in, nil
	}
	build, ok := opcodes[opcode]
	if !ok {
		return in, fmt.Errorf("unknown opcode %s", opcode)
	}
	var err error
	in.run, err = build(e, operands)
	return in, err
}

func arity(operands []string, n int) error {
	if len(operands) != n {
		return fmt.Errorf("%d operands, want %d", len(operands), n)
	}
	return nil
}
