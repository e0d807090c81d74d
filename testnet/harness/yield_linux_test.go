package harness

import (
	"os"
	"strconv"
	"syscall"
)

// All threads of the process yield to other processes, as threads that are made later do: here time passes only when
// every peer waits, while tests of other packages run beside in real time.
func init() {
	const nice = 5
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, nice)
		}
	}
}
