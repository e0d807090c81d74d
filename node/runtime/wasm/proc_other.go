//go:build unix && !linux

package wasm

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func liveUsage(int) (uint64, uint32, error) { return 0, 0, errors.ErrUnsupported }
func threadsStopped(int) bool               { return true } // nothing says it
func yieldToPeer()                          {}
func killAfter(time.Duration) error         { return errors.ErrUnsupported }

// canWake says that a process can stop itself for a while.
const canWake = false

// stopper stops the whole process.
type stopper struct{}

func newStopper() (*stopper, error) { return &stopper{}, nil }

// stop stops every thread until something else wakes the process.
func (*stopper) stop(time.Duration) error { return unix.Kill(os.Getpid(), unix.SIGSTOP) }
