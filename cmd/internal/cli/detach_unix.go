//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// detach lets a process live on when this one and its terminal end.
func detach(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
