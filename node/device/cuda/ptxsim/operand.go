package ptxsim

import (
	"fmt"
	"strconv"
	"strings"
)

// lanes is a value of each thread of a warp. 32-bit values are zero-extended, predicates are 0 or 1.
type lanes [32]uint64

// source is an operand that is read: a register, or a constant.
type source struct {
	reg     int // −1 if none
	special special
	value   *lanes
}

type special uint8

const (
	none special = iota
	tid
	ctaid
)

var specials = map[string]special{"%tid.x": tid, "%ctaid.x": ctaid}

// source reads an operand of a kind: a register of that kind, a number that fits it, the address of shared memory, or,
// of 32 bits, a special register.
func (e *entry) source(text string, kind regKind) (source, error) {
	if r, ok := e.regs[text]; ok {
		if r.kind != kind {
			return source{}, fmt.Errorf("register %s has another size", text)
		}
		return source{reg: r.number}, nil
	}
	if s, ok := specials[text]; ok && kind == word {
		return source{reg: -1, special: s}, nil
	}
	value, isShared := e.shared[text]
	if !isShared {
		var err error
		if value, err = number(text); err != nil {
			return source{}, err
		}
	}
	if kind == predicate || kind == word && value>>32 != 0 {
		return source{}, fmt.Errorf("%s does not fit", text)
	}
	s := source{reg: -1, value: &lanes{}}
	for i := range s.value {
		s.value[i] = value
	}
	return s, nil
}

func number(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("operand: got %q, want a register or a number", text)
	}
	return v, nil
}

// target reads a register that is written.
func (e *entry) target(text string, kind regKind) (int, error) {
	r, ok := e.regs[text]
	if !ok || r.kind != kind {
		return 0, fmt.Errorf("no register of this size: %q", text)
	}
	return r.number, nil
}

// vector reads {a, b, …} of n registers; one register alone when n is 1.
func (e *entry) vector(text string, n int, kind regKind) ([]int, error) {
	parts := []string{text}
	if n > 1 {
		inner, ok := strings.CutPrefix(text, "{")
		inner, ok2 := strings.CutSuffix(inner, "}")
		if parts = split(inner); !ok || !ok2 || len(parts) != n {
			return nil, fmt.Errorf("not a vector of %d: %q", n, text)
		}
	}
	out := make([]int, n)
	for i, p := range parts {
		var err error
		if out[i], err = e.target(p, kind); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// place is the address of a memory operand: a register and an offset.
type place struct {
	reg    int
	offset uint64
}

// place reads [register] or [register+number]. The register is as wide as addresses of the space.
func (e *entry) place(text string, kind regKind) (place, error) {
	inner, ok := strings.CutPrefix(text, "[")
	inner, ok2 := strings.CutSuffix(inner, "]")
	if !ok || !ok2 {
		return place{}, fmt.Errorf("not an address: %q", text)
	}
	name, plus, has := strings.Cut(inner, "+")
	p := place{}
	var err error
	if p.reg, err = e.target(name, kind); err != nil {
		return place{}, err
	}
	if has {
		p.offset, err = number(plus)
	}
	return p, err
}

// read returns the values of an operand for the threads in mask. All of them must have written it.
func (w *warp) read(s source, mask uint32) (*lanes, error) {
	switch {
	case s.reg >= 0:
		if missing := mask &^ w.defined[s.reg]; missing != 0 {
			return nil, w.fault(missing, "reads an unwritten register")
		}
		return &w.regs[s.reg], nil
	case s.special == tid:
		return &w.tid, nil
	case s.special == ctaid:
		return &w.block.ctaid, nil
	}
	return s.value, nil
}

// write marks a register as written by the threads in mask and gives its values to set.
func (w *warp) write(reg int, mask uint32) *lanes {
	w.defined[reg] |= mask
	return &w.regs[reg]
}

// addresses gives where each thread of mask points.
func (w *warp) addresses(p place, mask uint32) (lanes, error) {
	var out lanes
	at, err := w.read(source{reg: p.reg}, mask)
	if err != nil {
		return out, err
	}
	for l := range out {
		out[l] = at[l] + p.offset
	}
	return out, nil
}
