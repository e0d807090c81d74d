package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"golang.org/x/sys/unix"
)

// start runs the program with its outputs in pipes, which are copied up to the limit and drained after it.
func (g *guard) start() error {
	if err := g.order.checkVolumes(); err != nil {
		return err
	}
	if err := g.assume(); err != nil {
		return err
	}
	if err := g.writeSecrets(); err != nil {
		return err
	}
	g.order.Secrets = nil
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	files := []*os.File{null}
	for _, log := range g.out {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer w.Close()
		if err := g.own(w); err != nil {
			return err
		}
		files = append(files, w)
		bounded := runtime.NewLogWriter(log, g.order.LogBytes)
		g.copies.Go(func() { _, _ = io.Copy(bounded, r) })
	}
	g.started = time.Now()
	sys := &syscall.SysProcAttr{Setsid: true, Credential: g.credential()}
	g.pid, err = spawn(g.order, g.order.Command, files, sys)
	return err
}

// errNoVolume is of writable mounts that are not in the volume that the peer made.
var errNoVolume = errors.New(
	"container engine: does not see the mounts of this peer: run both in one mount namespace")

// checkVolumes reports whether the writable mounts are in their volumes: an engine that does not see the peer's mounts
// has mounted the directories below, which are not bounded.
func (o Order) checkVolumes() error {
	for _, r := range o.Rooms {
		if err := r.Volume.holds(r.Dir); err != nil {
			return err
		}
	}
	if o.Volume == (Volume{}) {
		return nil
	}
	for _, dir := range o.Writable {
		if err := o.Volume.holds(dir); err != nil {
			return err
		}
	}
	return nil
}

// holds returns an error if a directory is in another file system.
func (v Volume) holds(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("looking at the mount %s: %w", dir, err)
	}
	if s.Blocks != v.Blocks || s.Files != v.Files {
		return fmt.Errorf("%w: %s has %d blocks, wanted %d", errNoVolume, dir, s.Blocks, v.Blocks)
	}
	return nil
}

// writeSecrets writes the secrets for the program's user alone.
func (g *guard) writeSecrets() error {
	if len(g.order.Secrets) == 0 {
		return nil
	}
	if err := os.Mkdir(runtime.SecretsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making secrets directory: %w", err)
	}
	for name, value := range g.order.Secrets {
		if filepath.Base(name) != name {
			return fmt.Errorf("secret %.80q is no file name", name)
		}
		if err := os.WriteFile(filepath.Join(runtime.SecretsDir, name), value, 0o400); err != nil {
			return fmt.Errorf("writing secret %s: %w", name, err)
		}
	}
	if err := os.Chmod(runtime.SecretsDir, 0o500); err != nil || g.account == nil {
		return err
	}
	return give(runtime.SecretsDir, int(g.account.UID), int(g.account.GID))
}

// reap waits for every process of the container until the program itself is among the dead, then ends the others.
func (g *guard) reap() unix.WaitStatus {
	var status, s unix.WaitStatus
	for {
		pid, err := unix.Wait4(-1, &s, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return status // none left
		}
		g.mu.Lock()
		if pid == g.pid {
			g.over, status = true, s
			g.killAll()
			giveUp(g.dialled)
		}
		a := g.attached[pid]
		delete(g.attached, pid)
		if a != nil { // while attach and cancel are excluded: the process ID is free again
			_ = g.conn.Send(Answer{ID: a.id, Ended: true, Code: codeOf(s)})
		}
		g.mu.Unlock()
	}
}

func codeOf(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// finish writes the rest of the pipes, the last answers and the report.
func (g *guard) finish(s unix.WaitStatus) error {
	r := Report{Code: codeOf(s), Started: g.started, Ended: time.Now()}
	g.lastAnswers()
	g.copies.Wait()
	r.CPUMillis, r.MemoryMiB = g.usage()
	g.mu.Lock()
	r.Reason = g.reason
	asked := g.asked
	g.mu.Unlock()
	if r.Reason == runtime.ReasonNone {
		r.Code, r.Reason = g.why(s, asked, r.Code)
	} else if r.Code = runtime.CodeKilled; r.Reason == runtime.ReasonTimeout {
		r.Code = runtime.CodeTimeout
	} else if r.Reason == runtime.ReasonLost {
		r.Code = runtime.CodeLost
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := g.report.Write(b); err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return nil
}

// why finds the reason of an end that the guard did not bring about.
func (g *guard) why(s unix.WaitStatus, asked bool, code int) (int, runtime.Reason) {
	if code != 0 && oomKills() > 0 {
		return code, runtime.ReasonOOM
	}
	if s.Signaled() {
		switch s.Signal() {
		case unix.SIGTERM:
			if asked {
				return runtime.CodeKilled, runtime.ReasonKilled
			}
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGSYS, unix.SIGFPE, unix.SIGTRAP:
			return code, runtime.ReasonTrap // 128 and the signal, as a shell and Docker say it
		case unix.SIGXFSZ:
			return runtime.CodeKilled, runtime.ReasonDisk
		}
	}
	return code, runtime.ReasonNone
}

// usage is the container's usage: CPU of all its processes, memory without file cache that can be dropped.
func (g *guard) usage() (cpuMillis uint64, memoryMiB uint32) {
	if us, ok := cgroupValue("cpu.stat", "usage_usec"); ok {
		cpuMillis = us / 1000
	} else if ns, ok := cgroupValue("cpuacct/cpuacct.usage", ""); ok {
		cpuMillis = ns / 1e6
	} else {
		for _, who := range []int{unix.RUSAGE_CHILDREN, unix.RUSAGE_SELF} {
			var u unix.Rusage
			_ = unix.Getrusage(who, &u)
			cpuMillis += uint64(time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime)).Milliseconds())
		}
	}
	bytes, ok := cgroupValue("memory.current", "")
	cache, _ := cgroupValue("memory.stat", "inactive_file")
	if !ok {
		bytes, _ = cgroupValue("memory/memory.usage_in_bytes", "")
		cache, _ = cgroupValue("memory/memory.stat", "total_inactive_file")
	}
	return cpuMillis, uint32((bytes - min(cache, bytes)) >> 20)
}

// oomKills is the number of processes of this container that the kernel killed for lack of memory.
func oomKills() uint64 {
	n, ok := cgroupValue("memory.events", "oom_kill")
	if !ok {
		n, _ = cgroupValue("memory/memory.oom_control", "oom_kill")
	}
	return n
}

// cgroupValue reads a number of this container's control group: of cgroup v2 directly, of v1 below a controller's name.
func cgroupValue(file, key string) (uint64, bool) {
	b, err := os.ReadFile("/sys/fs/cgroup/" + file)
	if err != nil {
		return 0, false
	}
	return numberIn(b, key)
}

// numberIn returns the number in a line of a key, or in the only line if the key is empty.
func numberIn(text []byte, key string) (uint64, bool) {
	for line := range strings.Lines(string(text)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			name, value = "", name
		}
		if name == key {
			n, err := strconv.ParseUint(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
