//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned where another process, or another owner in this one, holds the lock.
var ErrLocked = errors.New("lock is held")

// Lock takes the file's lock exclusively, without waiting. It returns ErrLocked if the lock is held. Closing the file,
// or the death of the process, frees it.
func Lock(f *os.File) error { return try(f, unix.LOCK_EX) }

// AwaitFree returns when the lock is not held exclusively. It does not take the lock.
func AwaitFree(f *os.File) error {
	if err := flock(f, unix.LOCK_SH); err != nil {
		return err
	}
	return flock(f, unix.LOCK_UN)
}

// Held reports whether the lock is held exclusively.
func Held(f *os.File) (bool, error) {
	switch err := try(f, unix.LOCK_SH); {
	case errors.Is(err, ErrLocked):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, flock(f, unix.LOCK_UN)
}

func try(f *os.File, how int) error {
	err := flock(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
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
