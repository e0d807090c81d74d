package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/starling-network/starling/node/store"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("needs a small file system, and mounting one failed: %v (TestFullFile covers a full file without it)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 700_000), 0o600); err != nil {
		t.Fatal(err)
	}
	testFull(t, openAt(t, filepath.Join(dir, "journal.db")), func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if _, err := store.OpenSQLite(filepath.Join(dir, "sub", "new.db")); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a new journal on a full disk: %v", err)
	}
}
