//go:build !linux

package tun

import (
	"errors"
	"os"
)

// Open closes f and returns ErrUnsupported.
func Open(f *os.File) (*TUN, error) { return nil, errors.Join(ErrUnsupported, f.Close()) }
