//go:build unix && !linux

package wasm

import (
	"errors"
	"time"
)

func liveUsage(int) (uint64, uint32, error) { return 0, 0, errors.ErrUnsupported }
func yieldToPeer()                          {}
func killAfter(time.Duration) error         { return errors.ErrUnsupported }

type sleeper struct{}

func newSleeper() (sleeper, error)        { return sleeper{}, errors.ErrUnsupported }
func (sleeper) sleep(time.Duration) error { return errors.ErrUnsupported }
