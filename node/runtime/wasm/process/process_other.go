//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Usage returns errors.ErrUnsupported.
func Usage(int) (cpuMillis uint64, memoryMiB uint32, err error) { return 0, 0, errors.ErrUnsupported }

// Stopped returns true: nothing reports it.
func Stopped(int) bool { return true }

// Yield does nothing.
func Yield() {}

// KillAfter returns errors.ErrUnsupported.
func KillAfter(time.Duration) error { return errors.ErrUnsupported }

// CanWake reports whether a stopped process can wake itself.
const CanWake = false

// Stopper stops the whole process.
type Stopper struct{}

// NewStopper returns the Stopper of this process.
func NewStopper() (*Stopper, error) { return &Stopper{}, nil }

// Stop stops every thread until something else wakes the process.
func (*Stopper) Stop(time.Duration) error { return unix.Kill(os.Getpid(), unix.SIGSTOP) }
