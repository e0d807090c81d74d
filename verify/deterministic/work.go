// Package deterministic has the layouts of a deterministic execution: the work with everything that its result depends
// on, the result, and the output that binds a provider to both. It is pure; package replica compares results.
package deterministic

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits of the layouts.
const (
	MaxWork    = 256 << 10 // bytes of a Work
	MaxArgs    = 1024
	MaxEnv     = 256
	MaxInputs  = 256
	MaxOutputs = 16
	// MaxResult is the size of a Result with as many outputs as a Work can have.
	MaxResult = resultHead + MaxOutputs*sign.HashSize
	maxPath   = 512

	workVersion = 1
	workHead    = 1 + 8 + 4 + 4 + sign.HashSize
	resultHead  = 4 + 2
)

// Work is a deterministic execution with everything that its result depends on. Layout, little-endian; text is u32
// length ‖ bytes:
//
//	 1  version = 1
//	 8  seed, not 0: clock and randomness of the program
//	 4  memory MiB
//	 4  disk MiB
//	32  SHA-256 of the program
//	    u16 n ‖ n × text             arguments
//	    u16 n ‖ n × (name ‖ value)   environment, names ascending
//	    u16 n ‖ n × (path ‖ tree u8 ‖ SHA-256)   inputs, in the order in which they are placed
//	    u16 n ‖ n × path             outputs, at least one
type Work struct {
	Seed      uint64
	MemoryMiB uint32
	DiskMiB   uint32
	Program   sign.Hash
	Args      []string
	Env       []Variable
	Inputs    []Input
	Outputs   []string
}

// Variable of the environment.
type Variable struct{ Name, Value string }

// Input is a file, or the tar of a directory, that the program finds at Path.
type Input struct {
	Path    string
	Tree    bool
	Content sign.Hash // SHA-256
}

// Check holds the work to the rules of its layout.
func (w Work) Check() error {
	switch {
	case w.Seed == 0:
		return malformed("work", "no seed: the result is not determined")
	case w.MemoryMiB == 0 || w.DiskMiB == 0:
		return malformed("work", "no limit on memory or disk: the result depends on the machine")
	case len(w.Args) > MaxArgs || len(w.Env) > MaxEnv || len(w.Inputs) > MaxInputs || len(w.Outputs) > MaxOutputs:
		return malformed("work", "at most %d arguments, %d variables, %d inputs and %d outputs",
			MaxArgs, MaxEnv, MaxInputs, MaxOutputs)
	case len(w.Outputs) == 0:
		return malformed("work", "no output: no result to compare")
	}
	for i, v := range w.Env {
		if v.Name == "" || i > 0 && w.Env[i-1].Name >= v.Name {
			return malformed("work", "variables are not in order")
		}
	}
	for _, in := range w.Inputs {
		if err := checkPath(in.Path); err != nil {
			return err
		}
	}
	for _, p := range w.Outputs {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	if n := w.size(); n > MaxWork {
		return malformed("work", "%d bytes, at most %d", n, MaxWork)
	}
	return nil
}

func checkPath(p string) error {
	if len(p) > maxPath || !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0) ||
		!utf8.ValidString(p) {
		return malformed("work", "path %.80q is not a clean absolute path below /", p)
	}
	return nil
}

func (w Work) size() int {
	n := workHead + 4*2
	for _, a := range w.Args {
		n += 4 + len(a)
	}
	for _, v := range w.Env {
		n += 8 + len(v.Name) + len(v.Value)
	}
	for _, in := range w.Inputs {
		n += 4 + len(in.Path) + 1 + sign.HashSize
	}
	for _, p := range w.Outputs {
		n += 4 + len(p)
	}
	return n
}

// Marshal returns the layout of a work that passes Check.
func (w Work) Marshal() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, w.size())
	text := func(s string) { b = append(le.AppendUint32(b, uint32(len(s))), s...) }
	b = append(b, workVersion)
	b = le.AppendUint64(b, w.Seed)
	b = le.AppendUint32(b, w.MemoryMiB)
	b = le.AppendUint32(b, w.DiskMiB)
	b = append(b, w.Program[:]...)
	b = le.AppendUint16(b, uint16(len(w.Args)))
	for _, a := range w.Args {
		text(a)
	}
	b = le.AppendUint16(b, uint16(len(w.Env)))
	for _, v := range w.Env {
		text(v.Name)
		text(v.Value)
	}
	b = le.AppendUint16(b, uint16(len(w.Inputs)))
	for _, in := range w.Inputs {
		text(in.Path)
		tree := byte(0)
		if in.Tree {
			tree = 1
		}
		b = append(append(b, tree), in.Content[:]...)
	}
	b = le.AppendUint16(b, uint16(len(w.Outputs)))
	for _, p := range w.Outputs {
		text(p)
	}
	return b
}

// Hash names the work: SHA-256 of "starling/work/v1" ‖ layout.
func (w Work) Hash() sign.Hash { return sign.Sum([]byte("starling/work/v1"), w.Marshal()) }

// UnmarshalWork decodes the layout without trailing bytes. The result passes Check.
func UnmarshalWork(b []byte) (Work, error) {
	if len(b) > MaxWork || len(b) < workHead || b[0] != workVersion {
		return Work{}, malformed("work", "%d bytes, or not version %d", len(b), workVersion)
	}
	r := reader{b: b[1:]}
	w := Work{Seed: r.u64(), MemoryMiB: r.u32(), DiskMiB: r.u32(), Program: r.hash()}
	for range r.count(MaxArgs) {
		w.Args = append(w.Args, r.text())
	}
	for range r.count(MaxEnv) {
		w.Env = append(w.Env, Variable{r.text(), r.text()})
	}
	for range r.count(MaxInputs) {
		in := Input{Path: r.text()}
		tree := r.take(1)
		if len(tree) == 1 {
			r.bad = r.bad || tree[0] > 1
			in.Tree = tree[0] == 1
		}
		in.Content = r.hash()
		w.Inputs = append(w.Inputs, in)
	}
	for range r.count(MaxOutputs) {
		w.Outputs = append(w.Outputs, r.text())
	}
	if r.bad || len(r.b) > 0 {
		return Work{}, malformed("work", "truncated, over a limit, or bytes after the end")
	}
	return w, w.Check()
}

// Result is the outcome of an execution of a Work. Layout: exit code i32 ‖ n u16 ‖ n × SHA-256 of the tar of each
// output, in the work's order. The tar is canonical: names in order, modes 0644, 0755 or a link's 0777, no owners,
// times zero (p2p/blob).
type Result struct {
	Exit  int32       `json:"exit"`
	Trees []sign.Hash `json:"trees"`
}

// Marshal returns the layout.
func (r Result) Marshal() []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint32(make([]byte, 0, ResultSize(len(r.Trees))), uint32(r.Exit)),
		uint16(len(r.Trees)))
	for _, t := range r.Trees {
		b = append(b, t[:]...)
	}
	return b
}

// ResultSize returns the size of the layout of a result with the given number of outputs.
func ResultSize(outputs int) int { return resultHead + outputs*sign.HashSize }

// Equal reports whether two results are the same.
func (r Result) Equal(o Result) bool { return string(r.Marshal()) == string(o.Marshal()) }

// UnmarshalResult decodes the layout without trailing bytes.
func UnmarshalResult(b []byte) (Result, error) {
	r := reader{b: b}
	out := Result{Exit: int32(r.u32())}
	for range r.count(MaxOutputs) {
		out.Trees = append(out.Trees, r.hash())
	}
	if r.bad || len(r.b) > 0 {
		return Result{}, malformed("result", "%d bytes", len(b))
	}
	return out, nil
}

// Output is the output in the final receipt of a deterministic execution: SHA-256 of "starling/output/v2" ‖ hash of the
// work ‖ result. It binds the provider to this result of this work, and of no other work.
func (w Work) Output(r Result) sign.Hash {
	work := w.Hash()
	return sign.Sum([]byte("starling/output/v2"), work[:], r.Marshal())
}

// reader takes fields off a layout; once it could not, bad stays set and all it gives is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) hash() (h sign.Hash) {
	copy(h[:], r.take(sign.HashSize))
	return h
}

// count reads a number of items, at most most.
func (r *reader) count(most int) int {
	b := r.take(2)
	if b == nil {
		return 0
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > most {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) text() string {
	n := r.u32()
	if n > MaxWork {
		r.bad = true
	}
	return string(r.take(int(n)))
}

func malformed(object, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, object, fmt.Sprintf(format, args...))
}
