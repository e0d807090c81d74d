//go:build unix

// Package process has the kernel's means to watch and stop the processes of executions: locks that end with their
// process, usage, priority, and timers that work while a process stands still.
package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that this process has used; 0 if the kernel does not report it.
func CPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}
