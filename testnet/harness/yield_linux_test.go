package harness

import (
	"os"
	"strconv"
	"syscall"
)

// All threads of the process yield to other processes, as threads that are made later do: here time passes only when
// every peer waits, while tests of other packages run beside in real time. A process that yields already stays as it is.
func init() {
	const nice, kernel = 10, 20 // the system call returns 20 − nice
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if is, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid); err == nil && is > kernel-nice {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, nice)
		}
	}
}
