//go:build unix && !linux

package wasm

import (
	"errors"
	"syscall"
	"time"
)

func liveUsage(int) (uint64, uint32, error) { return 0, 0, errors.ErrUnsupported }
func threadsStopped(int) bool               { return true } // nothing says it
func yieldToPeer()                          {}
func killAfter(time.Duration) error         { return errors.ErrUnsupported }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

type sleeper struct{}

func newSleeper() (sleeper, error)        { return sleeper{}, errors.ErrUnsupported }
func (sleeper) sleep(time.Duration) error { return errors.ErrUnsupported }
