// Package house checks the rules of the source tree: the import order, the purity of the cores, the entries of the top
// level, and the bars on size and language. A failing check prints the reason for its rule. CONTRIBUTING.md states the
// rules.
//
// A bar is a limit; testdata/excess.txt lists the exceptions. That list may shrink and never grow: see Compare.
//
// The package reads source files only. It neither builds nor runs them.
package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Module is the path prefix of every import of this module.
const Module = "github.com/starling-network/starling"

// File is one parsed Go file.
type File struct {
	Path string // from the root of the tree, with slashes
	Dir  string // Path without the file name, "." for the root
	Test bool   // a _test.go file
	Text []byte
	AST  *ast.File
	Set  *token.FileSet
}

// At names a place in the file: "market/offer.go:12".
func (f File) At(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.Path, f.Set.Position(pos).Line)
}

// Imports calls fn for every import of the file, with its path and its local name.
func (f File) Imports(fn func(importPath, name string, pos token.Pos)) {
	for _, spec := range f.AST.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		fn(p, name, spec.Pos())
	}
}

// Generated reports whether the file is marked as generated.
func (f File) Generated() bool { return ast.IsGenerated(f.AST) }

// Root finds the tree: the nearest parent of the working directory with a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the root of the tree: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the root of the tree: no go.mod upwards from the working directory")
		}
		dir = parent
	}
}

// Walk calls fn with the path (from root, with slashes) of every file of the tree. It skips build outputs, dot-folders
// and node_modules.
func Walk(root string, fn func(rel string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed during the walk
			}
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !d.IsDir() {
			return fn(rel)
		}
		name := d.Name()
		if rel != "." &&
			(strings.HasPrefix(name, ".") || name == "node_modules" || rel == "bin" || rel == "testnet/out") {
			return filepath.SkipDir
		}
		return nil
	})
}

// Load parses every Go file of the tree, comments included.
func Load(root string) ([]File, error) {
	set := token.NewFileSet()
	var files []File
	err := Walk(root, func(rel string) error {
		if !strings.HasSuffix(rel, ".go") || strings.Contains(rel, "/testdata/") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil {
			return fmt.Errorf("reading %s: %w", rel, err)
		}
		parsed, err := parser.ParseFile(set, rel, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing %s: %w", rel, err)
		}
		files = append(files, File{
			Path: rel,
			Dir:  path.Dir(rel),
			Test: strings.HasSuffix(rel, "_test.go"),
			Text: text,
			AST:  parsed,
			Set:  set,
		})
		return nil
	})
	return files, err
}

// Within reports whether dir is folder or lies below it.
func Within(dir, folder string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}
