package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// widen makes a pipe hold as much as anybody may: long answers then cost fewer turns between the two processes. A pipe
// that stays as it was works, too.
func widen(pipe *os.File) {
	const size = 1 << 20
	if c, err := pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	}
}
