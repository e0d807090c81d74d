//go:build unix

package egress

import (
	"errors"
	"syscall"
)

// setBuffers sets the sizes of a socket's buffers; 0 leaves one as it is.
func setBuffers(c syscall.RawConn, read, write int) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		for option, n := range map[int]int{syscall.SO_RCVBUF: read, syscall.SO_SNDBUF: write} {
			if n > 0 {
				failed = errors.Join(failed, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, n))
			}
		}
	})
	return errors.Join(err, failed)
}
