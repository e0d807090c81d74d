package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// ErrReach means that a path cannot be reached from outside an execution; its text names the reachable paths, for the
// buyer.
var ErrReach = errors.New("cannot be reached")

// mountPoints returns the directories of the program that are mounted from outside, sorted, none within another. A
// module sees only these, and everything under one first path element is one mount. An image has other directories
// around them, so a container's mounts are as small as possible: an output, the tree of an input, the directory of an
// input file.
func mountPoints(w *nodepb.Workload) []string {
	var all []string
	add := func(p string, tree bool) {
		switch {
		case w.Image == "":
			p = "/" + top(p)
		case !tree:
			p = path.Dir(p)
		}
		all = append(all, p)
	}
	for _, o := range writableDirs(w) {
		add(o, true)
	}
	for _, in := range w.Inputs {
		add(in.GetPath(), in.GetBlob().GetTree())
	}
	return runtime.Outermost(all)
}

// writableDirs returns the directories that the program may write: its outputs, the checkpoint, and the scratch
// directory.
func writableDirs(w *nodepb.Workload) []string {
	dirs := slices.Clone(w.Outputs)
	if c := w.GetCheckpoint(); c != nil {
		dirs = append(dirs, c.GetPath())
	}
	if w.Scratch != "" {
		dirs = append(dirs, w.Scratch)
	}
	return dirs
}

// Writes reports whether the program has a directory that it may write.
func Writes(w *nodepb.Workload) bool { return len(writableDirs(w)) > 0 }

// within reports whether p is dir or lies in it; both are clean and absolute.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// writable reports whether the program may write below a mount point.
func writable(w *nodepb.Workload, mount string) bool {
	return slices.ContainsFunc(writableDirs(w), func(o string) bool { return within(o, mount) })
}

// mountOf is the mount point that p lies in, or "".
func mountOf(w *nodepb.Workload, p string) string {
	for _, m := range mountPoints(w) {
		if within(p, m) {
			return m
		}
	}
	return ""
}

// Mounts are the stage's directories as the runtime is to show them.
func (s Stage) Mounts(w *nodepb.Workload) []runtime.Mount {
	var out []runtime.Mount
	for _, m := range mountPoints(w) {
		out = append(out, runtime.Mount{Host: s.host(m, writable(w, m)), Guest: m, ReadOnly: !writable(w, m)})
	}
	return out
}

// Place is a path of the program on this machine. Root confines access to it, even through links that the program made.
// Close Root.
type Place struct {
	Root  *os.Root
	Name  string // below Root, "." for Root itself
	Mount string // as the program calls Root
}

// Open finds a path of the program among its mounts, for writing below it if write. It returns ErrReach.
func (s Stage) Open(w *nodepb.Workload, guest string, write bool) (Place, error) {
	if len(guest) > maxPath || !path.IsAbs(guest) || strings.ContainsRune(guest, 0) {
		return Place{}, fmt.Errorf("%w: %.80q is not an absolute path", ErrReach, guest)
	}
	guest = path.Clean(guest)
	m := mountOf(w, guest)
	if m == "" {
		return Place{}, fmt.Errorf("%w: %s is not below an input or output of the job; %s",
			ErrReach, guest, reachable(w, write))
	}
	if write && !writable(w, m) {
		return Place{}, fmt.Errorf("%w: the program's %s is read-only; %s", ErrReach, m, reachable(w, write))
	}
	root, err := os.OpenRoot(s.host(m, writable(w, m)))
	if errors.Is(err, fs.ErrNotExist) {
		return Place{}, fmt.Errorf("%w: %s: no longer exists", ErrReach, m)
	}
	if err != nil {
		return Place{}, fmt.Errorf("opening %s: %w", m, err)
	}
	rel, err := filepath.Rel(m, guest)
	if err != nil {
		rel = "."
	}
	return Place{Root: root, Name: filepath.ToSlash(rel), Mount: m}, nil
}

// reachable returns a sentence with the reachable directories.
func reachable(w *nodepb.Workload, write bool) string {
	var dirs []string
	for _, m := range mountPoints(w) {
		if !write || writable(w, m) {
			dirs = append(dirs, m)
		}
	}
	verb := "read from"
	if write {
		verb = "written to"
	}
	if len(dirs) == 0 {
		return fmt.Sprintf("no directory can be %s: name one with spec.outputs", verb)
	}
	return fmt.Sprintf("paths that can be %s: below %s", verb, strings.Join(dirs, ", "))
}
