package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPath is the search path for a program without a slash if its environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const (
	// forkPause is the time between two checks of a new process that is not its program yet.
	forkPause = 100 * time.Millisecond
	// forkTries is how many times a new process is continued that a program has stopped. Then it is killed.
	forkTries = 10
)

// spawn starts a program of the container under the limits of an order.
func spawn(o Order, c Command, files []*os.File, sys *syscall.SysProcAttr) (int, error) {
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return 0, fmt.Errorf("working directory %q is not in the image or its mounts", c.Dir)
	}
	program, err := lookPath(c)
	if err != nil {
		return 0, err
	}
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
	}
	pid, err := forkExec(program, c.Argv, &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: fds, Sys: sys})
	if err != nil {
		return 0, fmt.Errorf("running %q: %w", c.Argv[0], err)
	}
	// On low memory the program is killed first. A write past the disk limit in one file is refused. A guard may not
	// limit programs of another user; their mounts are in a volume.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	if len(o.Writable) > 0 {
		most := uint64(o.DiskBytes) + 1
		for _, r := range o.Rooms {
			most = max(most, uint64(r.Bytes)+1)
		}
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: most}, nil)
	}
	return pid, nil
}

func lookPath(c Command) (string, error) {
	name := c.Argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(c.Dir, name)
		}
		return name, nil
	}
	list := DefaultPath
	for _, kv := range c.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			list = v
		}
	}
	for _, dir := range filepath.SplitList(list) {
		if p, err := exec.LookPath(filepath.Join("/", dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%q is not in the image's PATH %s", name, list)
}

// forkExec starts a program. The calling thread waits until the new process is the program, and Go's runtime cannot
// stop that thread to collect garbage: every goroutine would wait for it. So no collection begins meanwhile, and GC
// returns after any that had begun; SetGCPercent does not wait for the last step of one. The container's programs can
// stop the process meanwhile, so it is continued, and killed if it is stopped again and again.
func forkExec(program string, argv []string, attr *syscall.ProcAttr) (int, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	goruntime.GC()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for try := 1; ; try++ {
			select {
			case <-done:
				return
			case <-time.After(forkPause):
			}
			signal := unix.SIGCONT
			if try > forkTries {
				signal = unix.SIGKILL
			}
			_ = eachNumber("/proc", func(pid int) {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if err == nil && isStoppedFork(b, os.Getpid(), now.Nano()) {
					_ = unix.Kill(pid, signal)
				}
			})
		}
	}()
	return syscall.ForkExec(program, argv, attr)
}

// isStoppedFork reports whether a stat file of proc(5) is of a child of parent that was started since a time, in
// nanoseconds of CLOCK_BOOTTIME, has executed no program, and is stopped.
func isStoppedFork(stat []byte, parent int, since int64) bool {
	const (
		forkNoExec = 0x40       // PF_FORKNOEXEC
		tick       = 10_000_000 // in nanoseconds; USER_HZ is 100
	)
	f := statFields(stat)
	if len(f) < 20 || f[0] != "T" || f[1] != strconv.Itoa(parent) {
		return false
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	start, bad := strconv.ParseInt(f[19], 10, 64)
	return err == nil && bad == nil && flags&forkNoExec != 0 && start >= since/tick
}
