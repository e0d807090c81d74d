package blob_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// On a disk without room a Put and a Fetch say so, leave nothing visible, and the fetch goes on when there
// is room again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	to, err := blob.OpenStore(dir, plenty)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := to.Put(t.Context(), bytes.NewReader(random(1<<20))); !errors.Is(err, blob.ErrDiskFull) {
		t.Errorf("put: got %v, want ErrDiskFull", err)
	}
	empty(t, filepath.Join(dir, "tmp"))
	a, b, _, from := two(t, 0, nil)
	c := put(t, from, random(1<<20))
	if err := blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, plenty, to, nil); !errors.Is(err, blob.ErrDiskFull) {
		t.Errorf("fetch: got %v, want ErrDiskFull", err)
	}
	if to.Has(c) || to.Used() != 0 {
		t.Errorf("it is there, or %d bytes are in use", to.Used())
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	partial, err := os.Stat(filepath.Join(dir, "partial", c.String()))
	if err != nil || partial.Size() == 0 {
		t.Errorf("nothing is left to resume: %v", err)
	}
	if err := blob.Fetch(t.Context(), a, p2ptest.Network, b.ID(), c, plenty, to, nil); err != nil || !to.Has(c) {
		t.Error(err)
	}
}
