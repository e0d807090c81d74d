package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWalk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/b", "\xff/\xfe", "shut"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "\xff/\xfe/f"), []byte("x"), 0o644),
		os.Symlink("..", filepath.Join(dir, "a/up")), os.Symlink("/", filepath.Join(dir, "a/out")),
		os.WriteFile(filepath.Join(dir, "shut/in"), nil, 0o644), os.Chmod(filepath.Join(dir, "shut"), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "shut"), 0o700) }) // so that it can be removed
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var got []string
	if err := Walk(root, func(name string, info fs.FileInfo) error {
		got = append(got, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{"a", "a/b", "a/out", "a/up", "shut", "shut/in", "\xff", "\xff/\xfe", "\xff/\xfe/f"}
	if os.Geteuid() != 0 {
		want = slices.Delete(want, 5, 6)
	}
	if !slices.Equal(got, want) {
		t.Errorf("walked %q, want %q", got, want)
	}
	n := 0
	if err := Walk(root, func(string, fs.FileInfo) error { n++; return fs.SkipAll }); err != nil || n != 1 {
		t.Errorf("went on after SkipAll: %d, %v", n, err)
	}
	if err := root.MkdirAll(strings.Repeat("d/", maxWalkDepth+1), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Walk(root, func(string, fs.FileInfo) error { return nil }); !errors.Is(err, ErrDeep) {
		t.Errorf("walked a chain of %d directories: %v", maxWalkDepth+1, err)
	}
}
