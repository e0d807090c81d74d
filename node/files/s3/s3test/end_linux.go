package s3test

import "syscall"

// untilParentEnds ends a program with this one, even if this one is killed.
func untilParentEnds() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
