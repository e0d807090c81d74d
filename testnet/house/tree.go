package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// TopLevel is the allowed entries of the root beside dot-files: one folder per idea, and the files that a new developer
// expects.
var TopLevel = []string{
	"cmd", "node", "p2p", "market", "verify", "chain", "testnet",
	"go.mod", "go.sum", "README.md", "LICENSE", "Makefile", "CONTRIBUTING.md",
	"bin", // built, not committed
}

// CheckTopLevel returns one sentence for every unknown entry of the root.
func CheckTopLevel(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("listing the root of the tree: %w", err)
	}
	var breaches []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(TopLevel, e.Name()) {
			breaches = append(breaches, fmt.Sprintf("%s stands at the top level: the tree must be learnt at one look, "+
				"so a new thing goes into the folder whose idea it serves", e.Name()))
		}
	}
	return breaches, nil
}

// CheckPackageComments returns one sentence for every package without a package comment, including packages of test
// files or of generated files only.
func CheckPackageComments(files []File) []string {
	documented := map[string]bool{}
	for _, f := range files {
		// An external test package (name_test) is described by the package it tests.
		documented[f.Dir] = documented[f.Dir] || f.AST.Doc != nil && describes(f.AST)
	}
	var breaches []string
	for dir, ok := range documented {
		if !ok {
			breaches = append(breaches,
				fmt.Sprintf("%s has no package comment: a folder is one idea, and its comment says which", dir))
		}
	}
	slices.Sort(breaches)
	return breaches
}

// describes reports whether the comment above the package clause is the package's description, in Go's form
// ("Package name …", "Command name …"), not a licence header or a build tag.
func describes(f *ast.File) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package ") || strings.HasPrefix(text, "Command ")
}

var leftForLater = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`) // house:allow the marks themselves

// CheckNothingLeftForLater returns one sentence for every mark of unfinished work in sources, scripts and pages.
func CheckNothingLeftForLater(root string) ([]string, error) {
	var breaches []string
	err := Walk(root, func(rel string) error {
		switch filepath.Ext(rel) {
		case ".go", ".md", ".proto", ".sh", ".js", ".txtar", "":
		default:
			return nil
		}
		if strings.Contains(rel, "/testdata/fuzz/") || strings.HasSuffix(rel, ".pb.go") {
			return nil
		}
		info, err := os.Stat(filepath.Join(root, rel))
		if err != nil || info.Size() > 1<<20 {
			return nil // removed meanwhile, or not a source file
		}
		data, err := os.ReadFile(filepath.Join(root, rel))
		if err != nil {
			return fmt.Errorf("reading %s: %w", rel, err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return nil // a binary
		}
		for i, line := range strings.Split(string(data), "\n") {
			if leftForLater.MatchString(line) && !strings.Contains(line, "house:allow") {
				breaches = append(breaches,
					fmt.Sprintf("%s:%d is left for later: finish it, or make it an issue; "+
						"marks in the code are read by nobody",
						rel, i+1))
			}
		}
		return nil
	})
	return breaches, err
}

var replaceLine = regexp.MustCompile(`(?m)^\s*replace[\s(]`)

// CheckGoMod returns one sentence if go.mod replaces a module.
func CheckGoMod(root string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading go.mod: %w", err)
	}
	if replaceLine.Match(data) {
		return []string{"go.mod has a replace directive: it works only here, " +
			"and breaks `go install` of the binary for everybody else"}, nil
	}
	return nil, nil
}

// MaxMainLines is the highest number of lines of cmd/starling/main.go.
const MaxMainLines = 50

// CheckMain returns one sentence if main is longer.
func CheckMain(root string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(root, "cmd", "starling", "main.go"))
	if err != nil {
		return nil, fmt.Errorf("reading main: %w", err)
	}
	if n := bytes.Count(data, []byte("\n")); n > MaxMainLines {
		return []string{fmt.Sprintf("cmd/starling/main.go has %d lines, more than %d: "+
			"what a main does cannot be tested, so it only calls",
			n, MaxMainLines)}, nil
	}
	return nil, nil
}
