package wholefile

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A reader sees one writer's content, whole, while others replace the file; a failed write changes and leaves nothing.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 20 {
				if err := Write(path, bytes.Repeat([]byte{byte('a' + n)}, 1<<16), 0o640); err != nil {
					t.Error(err)
				}
				b, err := os.ReadFile(path)
				if err != nil || len(b) != 1<<16 || len(bytes.Trim(b, string(b[:1]))) > 0 {
					t.Errorf("read %d bytes: %v", len(b), err)
				}
			}
		})
	}
	all.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if Write(filepath.Join(dir, "directory"), nil, 0o600) == nil || Write(filepath.Join(dir, "none", "x"), nil, 0o600) == nil {
		t.Error("a directory is replaced, or there is a file in none")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}
