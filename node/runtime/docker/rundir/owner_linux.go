package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// Prepare makes the directory and takes its owner lock. The lock file's creation decides between two starts in one.
func Prepare(s runtime.Spec) (*os.File, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating execution directory: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(s.Dir, OwnerFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w in %s", runtime.ErrExists, s.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("creating lock: %w", err)
	}
	entries, err := os.ReadDir(s.Dir)
	if err == nil && len(entries) != 1 {
		_ = os.Remove(owner.Name())
		_ = owner.Close()
		return nil, fmt.Errorf("%w: %s is not empty", runtime.ErrExists, s.Dir)
	}
	control := filepath.Join(s.Dir, ControlDir)
	err = errors.Join(err, Lock(owner), os.Chmod(s.Dir, 0o700), os.Mkdir(control, 0o755), os.Chmod(control, 0o755),
		// mount point of the guard's binary
		os.WriteFile(filepath.Join(control, filepath.Base(guard.Path)), nil, 0o644))
	if err == nil && s.Overlay != nil {
		err = prepareOverlay(s)
	}
	if err != nil {
		_ = os.RemoveAll(s.Dir)
		_ = owner.Close()
		return nil, fmt.Errorf("preparing execution directory: %w", err)
	}
	return owner, nil
}

// Lock takes a lock that dies with this process, or fails.
func Lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// Taken reports whether a living process owns the execution of this directory.
func Taken(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, OwnerFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return Lock(f) != nil
}
