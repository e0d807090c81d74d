package remove_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/p2p/blob/remove"
)

func TestAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := remove.All(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("a missing one: %v", err)
	}
	keep := filepath.Join(dir, "keep")
	for i := range 2 {
		sub := filepath.Join(dir, "gone", fmt.Sprint(i))
		for j := range 300 {
			if err := errors.Join(os.MkdirAll(filepath.Join(sub, fmt.Sprint(j), "x"), 0o755), os.WriteFile(filepath.Join(sub, fmt.Sprint("f", j)), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Mkdir(keep, 0o755), os.WriteFile(filepath.Join(keep, "file"), nil, 0o600), os.Symlink(keep, filepath.Join(dir, "gone", "0", "link"))); err != nil {
		t.Fatal(err)
	}
	if err := remove.All(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(keep, "file")); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
	if err := remove.All(filepath.Join(keep, "file")); err != nil {
		t.Errorf("a file: %v", err)
	}
}
