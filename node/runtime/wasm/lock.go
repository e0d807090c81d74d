//go:build unix

package wasm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked says that another process, or another owner in this one, holds the lock.
var errLocked = errors.New("lock is held")

// lock takes the file's lock at once or fails with errLocked. Closing the file, or the death of the process, frees it.
func lock(f *os.File, exclusive bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := flock(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// awaitFree returns when nobody holds the lock exclusively; it does not keep it.
func awaitFree(f *os.File) error {
	if err := flock(f, unix.LOCK_SH); err != nil {
		return err
	}
	return flock(f, unix.LOCK_UN)
}

// held reports whether somebody holds the lock exclusively.
func held(f *os.File) (bool, error) {
	switch err := lock(f, false); {
	case errors.Is(err, errLocked):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, flock(f, unix.LOCK_UN)
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}
