package program_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// read joins the files that match.
func read(t *testing.T, patterns ...string) string {
	t.Helper()
	var all strings.Builder
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", p, len(paths), err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
	}
	return all.String()
}

// testFiles are those of the whole tree.
func testFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == ".git" || name == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestThreatsNameRealTests: every test that THREATS.md names is there.
func TestThreatsNameRealTests(t *testing.T) {
	t.Parallel()
	page := read(t, "THREATS.md")
	source := read(t, append(testFiles(t), "src/*.rs")...)
	named := regexp.MustCompile("`(?:model\\.)?((?:Test|Fuzz)\\w+|[a-z]+(?:_[a-z]+)+)`").FindAllStringSubmatch(page, -1)
	if len(named) < 20 {
		t.Fatalf("%d tests found in the page", len(named))
	}
	for _, m := range named {
		if !strings.Contains(source, "func "+m[1]+"(") && !strings.Contains(source, "fn "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
		}
	}
}

// TestProtocolListsErrors: the table of PROTOCOL.md is that of src/error.rs, and every instruction of src/lib.rs has a call.
func TestProtocolListsErrors(t *testing.T) {
	t.Parallel()
	page := read(t, "PROTOCOL.md")
	errors := regexp.MustCompile(`(?m)((?:^    /// .*\n)+)^    (\w+) = (\d+),`).FindAllStringSubmatch(read(t, "src/error.rs"), -1)
	if len(errors) < 20 {
		t.Fatalf("%d errors found", len(errors))
	}
	for _, e := range errors {
		meaning := strings.Join(strings.Fields(strings.ReplaceAll(e[1], "///", "")), " ")
		if row := fmt.Sprintf("| %s | %s | %s |\n", e[3], e[2], meaning); !strings.Contains(page, row) {
			t.Errorf("PROTOCOL.md lacks: %s", row)
		}
	}
	known := map[string]bool{}
	for name := range calls() {
		name, _, _ = strings.Cut(name, " ")
		known[name] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^    pub const (\w+): u8 = \d+;`).FindAllStringSubmatch(strings.Split(read(t, "src/lib.rs"), "pub mod kind")[0], -1) {
		if !known[m[1]] {
			t.Errorf("%s has no call here", m[1])
		}
	}
}
