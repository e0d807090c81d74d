//go:build !unix

package cli

import "os/exec"

// detach does nothing where a process does not end with its terminal.
func detach(*exec.Cmd) {}
