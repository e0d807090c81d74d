package template

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/starling-network/starling/market/sign"
)

//go:embed all:builtin
var embedded embed.FS

// ran has a line for each built-in template whose smoke run passed: its name and its digest at that time. The scenario
// testnet/scenarios/images.sh and the tests write it; see Record.
//
//go:embed ran.txt
var ran string

// BuiltinNames returns the names of the built-in templates, sorted.
func BuiltinNames() []string {
	entries, err := fs.ReadDir(embedded, "builtin")
	if err != nil {
		panic(err) // it is embedded in this program
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Builtin returns a built-in template.
func Builtin(name string) (Template, error) {
	if !slices.Contains(BuiltinNames(), name) {
		return Template{}, fmt.Errorf("template %.40q: not built in: want one of %s", name,
			strings.Join(BuiltinNames(), ", "))
	}
	dir, err := fs.Sub(embedded, "builtin/"+name)
	if err != nil {
		return Template{}, err
	}
	return ReadFS(name, dir)
}

// Ran reports whether the smoke run of exactly this template passed, on a machine without a GPU.
func (t Template) Ran() bool { return ranIn(ran)[t.Name] == t.Digest() }

// ranIn reads the lines of ran.txt.
func ranIn(text string) map[string]sign.Hash {
	out := map[string]sign.Hash{}
	for line := range strings.Lines(text) {
		name, digest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if h, err := sign.ParseHash(digest); err == nil {
			out[name] = h
		}
	}
	return out
}

// Record returns the lines of ran.txt with a template whose smoke run passed, and without those that have changed or
// are gone.
func Record(text string, passed ...Template) string {
	all := ranIn(text)
	for _, t := range passed {
		all[t.Name] = t.Digest()
	}
	var lines []string
	for name, digest := range all {
		if t, err := Builtin(name); err == nil && t.Digest() == digest {
			lines = append(lines, name+" "+digest.String()+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// RecordIn adds a template whose smoke run passed to a file such as ran.txt. If file is empty, it does nothing.
func RecordIn(file string, passed Template) error {
	if file == "" {
		return nil
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("recording the run of %s: %w", passed.Name, err)
	}
	return os.WriteFile(file, []byte(Record(string(old), passed)), 0o644)
}
