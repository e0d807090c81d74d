package blob_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/starling-network/starling/p2p/blob/remove"
)

// envRemove has the test's own program remove a folder with few descriptors.
const envRemove = "STARLING_TEST_REMOVE"

// A program leaves more folders in each other than a peer may have files open, with paths that are longer than any that the
// system takes, and some that it closed to everybody. They are removed all the same.
func TestAttackDeepFolder(t *testing.T) {
	if dir := os.Getenv(envRemove); dir != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 32, Max: 32}); err != nil {
			t.Fatal(err)
		}
		if err := remove.All(dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	dir := t.TempDir()
	chain(t, dir, 300)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAttackDeepFolder$")
	cmd.Env = append(os.Environ(), envRemove+"="+dir)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("removing it: %v\n%s", err, said)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
		_ = remove.All(dir)
	}
}
