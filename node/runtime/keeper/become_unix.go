//go:build unix

package keeper

import (
	"os"
	"syscall"
)

// become replaces this process by another program. It returns an error or never.
func become(path string, argv []string) error { return syscall.Exec(path, argv, os.Environ()) }
