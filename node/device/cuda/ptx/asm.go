package ptx

import (
	"fmt"
	"strings"
)

// kernel is one entry being written.
type kernel struct {
	spec   Kernel
	blocks int // of it that must fit a multiprocessor at once: bounds the registers
	decls  strings.Builder
	body   strings.Builder
}

func begin(spec Kernel, blocks int) *kernel { return &kernel{spec: spec, blocks: blocks} }

// p writes one or several instructions.
func (k *kernel) p(format string, args ...any) {
	k.body.WriteByte('\t')
	fmt.Fprintf(&k.body, format, args...)
	k.body.WriteByte('\n')
}

func (k *kernel) label(name string) { fmt.Fprintf(&k.body, "%s:\n", name) }

// reg declares registers of a type.
func (k *kernel) reg(kind string, names ...string) {
	fmt.Fprintf(&k.decls, "\t.reg .%s %s;\n", kind, strings.Join(names, ", "))
}

// shared declares an array of shared memory.
func (k *kernel) shared(name string, align, size int) {
	fmt.Fprintf(&k.decls, "\t.shared .align %d .b8 %s[%d];\n", align, name, size)
}

// params declares a register for each parameter, under its name, and loads it. Pointers become global addresses.
func (k *kernel) params() {
	for _, q := range k.spec.Params {
		kind := q.Kind.String()
		k.reg(kind, q.Name)
		k.p("ld.param.%s %s, [p_%s];", kind, q.Name, q.Name)
		if q.Kind == Pointer {
			k.p("cvta.to.global.u64 %s, %s;", q.Name, q.Name)
		}
	}
}

// thread sets i to the number of the thread in the grid and leaves those from count on.
func (k *kernel) thread(i, count string) {
	k.reg("u32", i, "ctaid")
	k.reg("pred", "beyond")
	k.p("mov.u32 %s, %%tid.x;", i)
	k.p("mov.u32 ctaid, %%ctaid.x;")
	k.p("mad.lo.u32 %s, ctaid, %d, %s;", i, k.spec.Threads, i)
	k.p("setp.ge.u32 beyond, %s, %s;", i, count)
	k.p("@beyond ret;")
}

// text is the whole entry.
func (k *kernel) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".visible .entry %s(", k.spec.Name)
	for i, q := range k.spec.Params {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n\t.param .%s p_%s", q.Kind, q.Name)
	}
	fmt.Fprintf(&b, "\n)\n.maxntid %d, 1, 1\n.minnctapersm %d\n{\n", k.spec.Threads, k.blocks)
	b.WriteString(k.decls.String())
	b.WriteString(k.body.String())
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// names is prefix0 … prefix(n−1).
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// vector is {a, b, …}.
func vector(regs ...string) string { return "{" + strings.Join(regs, ", ") + "}" }
