package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clockTicks is USER_HZ, the unit of /proc/PID/stat: 100 on every architecture Linux and Go share.
const clockTicks = 100

// Usage returns the CPU milliseconds that a process has used, and its resident MiB.
func Usage(pid int) (cpuMillis uint64, memoryMiB uint32, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	i := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	fields := bytes.Fields(b[i+1:])
	if i < 0 || len(fields) < 22 {
		return 0, 0, fmt.Errorf("reading usage of process %d: unknown format", pid)
	}
	num := func(n int) uint64 { // n = field number of proc(5) - 3
		v, _ := strconv.ParseUint(string(fields[n]), 10, 64)
		return v
	}
	ticks, pages := num(11)+num(12), num(21)
	return ticks * 1000 / clockTicks, uint32(pages * uint64(os.Getpagesize()) >> 20), nil
}

// Stopped reports whether no thread of a process can run: each is stopped by a signal, or gone.
func Stopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		i := bytes.LastIndexByte(b, ')')
		if err == nil && i >= 0 && len(b) > i+2 && !bytes.ContainsAny(b[i+2:i+3], "TtZX") {
			return false
		}
	}
	return true
}

// Yield puts all threads of this process at nice 10; those made later inherit it.
func Yield() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 10)
		}
	}
}

// kernelTimer makes the kernel send this process a signal once. It needs no thread of this process to run.
type kernelTimer struct{ id int32 }

type sigevent struct {
	value  uintptr
	signo  int32
	notify int32
	_      [48]byte
}

func newKernelTimer(sig unix.Signal) (kernelTimer, error) {
	ev := sigevent{signo: int32(sig)} // SIGEV_SIGNAL is 0
	var id int32
	_, _, e := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC,
		uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&id)))
	if e != 0 {
		return kernelTimer{}, fmt.Errorf("creating timer: %w", e)
	}
	return kernelTimer{id}, nil
}

// set arms the timer; zero disarms it.
func (t kernelTimer) set(after time.Duration) error {
	spec := [2]unix.Timespec{1: unix.NsecToTimespec(int64(after))} // [0] is the interval: none
	_, _, e := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(t.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	runtime.KeepAlive(&spec)
	if e != 0 {
		return fmt.Errorf("setting timer: %w", e)
	}
	return nil
}

// KillAfter makes the kernel kill this process after d, even if the process is stopped.
func KillAfter(d time.Duration) error {
	t, err := newKernelTimer(unix.SIGKILL)
	if err != nil {
		return err
	}
	return t.set(d)
}

// CanWake reports whether a stopped process can wake itself.
const CanWake = true

// stopSlack is how much later a second timer wakes the process, should the first have come before it had stopped.
const stopSlack = 5 * time.Second

// Stopper stops the whole process for a while.
type Stopper struct {
	mu          sync.Mutex
	wake, again kernelTimer
}

// NewStopper returns the Stopper of this process. A process has one.
func NewStopper() (*Stopper, error) {
	wake, err := newKernelTimer(unix.SIGCONT)
	again, err2 := newKernelTimer(unix.SIGCONT)
	return &Stopper{wake: wake, again: again}, errors.Join(err, err2)
}

// Stop stops every thread for d, or until a signal resumes the process. The signal is sent to the calling thread, so it
// cannot disarm the timers before it has stopped. A SIGSTOP drops a pending SIGCONT, so a timer that fires too early
// has no effect: hence the second timer.
func (s *Stopper) Stop(d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(s.wake.set(d), s.again.set(d+stopSlack)); err != nil {
		return err
	}
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return errors.Join(s.wake.set(0), s.again.set(0))
}
