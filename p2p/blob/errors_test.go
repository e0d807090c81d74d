package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestDiskError(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		err := diskError(fmt.Errorf("writing: %w", &fs.PathError{Op: "write", Path: "x", Err: errno}))
		if !errors.Is(err, ErrDiskFull) || !errors.Is(err, errno) {
			t.Errorf("%v became %v", errno, err)
		}
	}
	if err := diskError(fs.ErrPermission); errors.Is(err, ErrDiskFull) {
		t.Errorf("got %v", err)
	}
}
