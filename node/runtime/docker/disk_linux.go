package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/volume"
)

const (
	// block is the least size of every file and directory.
	block = 4096
	// diskPoll is the shortest time between two looks at measured mounts. Looking takes at most a tenth of the time, or
	// half of it while the disk's free space falls by more than the execution may still write.
	diskPoll = 50 * time.Millisecond
	// diskFailures is how many looks in a row may fail.
	diskFailures = 20
	// floorPoll is how often the free room of disks is looked at on which mounts are measured.
	floorPoll = 250 * time.Millisecond
	// floorFiles is how many files must be free there.
	floorFiles = 1 << 10
	// slowLook is how long a look at an execution's files may take before they count as growing faster than any that could be measured.
	slowLook = time.Second
)

// MakeVolume makes dir a volume for the writable mounts of one execution. It returns runtime.ErrNoVolume if this
// machine has none: mounts given to Start are then measured.
func (r *Runtime) MakeVolume(ctx context.Context, dir string, bytes int64) error {
	if r.noVolume != nil {
		return r.noVolume
	}
	err := volume.Make(ctx, dir, bytes)
	if errors.Is(err, volume.ErrNoRoom) {
		return fmt.Errorf("%w: %w", runtime.ErrNoRoom, err)
	}
	return err
}

// tryVolumes finds out why this machine has no volumes, if it has none. The engine must see them: otherwise it would
// mount the directory below.
func (r *Runtime) tryVolumes(ctx context.Context) {
	pid, err := r.engine.pid(ctx)
	if err == nil {
		err = volume.Try(ctx, r.cfg.Scratch, pid)
	}
	if err != nil {
		r.noVolume = fmt.Errorf("%w: %w", runtime.ErrNoVolume, err)
		r.cfg.Logger.Warn("disk limits of containers are measured, not held by file systems of their own", "reason", err)
	}
}

// pid is the engine's process.
func (e *engine) pid(ctx context.Context) (int, error) {
	conn, err := e.Dialer()(ctx)
	if err != nil {
		return 0, e.explain(err)
	}
	defer conn.Close()
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return 0, errors.New("the connection to the container engine is no socket")
	}
	pid, err := guard.PidOf(raw)
	if err == nil && pid == 0 {
		err = errors.New("the container engine is no process that this peer sees")
	}
	return pid, err
}

// held says how writable mounts are held to their limit.
type held struct {
	device   uint64 // of the volume that all of them are in; 0: they are measured
	size     guard.Volume
	volume   string   // a directory in it
	measured []string // their directories
	bytes    int64    // the limit
}

// holding looks at where the writable mounts of an execution with this directory are. A file system that is not the directory's own, and
// not larger than a volume, holds them by itself.
func holding(dir string, writable []string, bytes int64) (held, error) {
	h := held{measured: writable, bytes: bytes}
	if len(writable) == 0 {
		return h, nil
	}
	var own, first unix.Stat_t
	var size unix.Statfs_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Stat(writable[0], &first), unix.Statfs(writable[0], &size)); err != nil {
		return h, err
	}
	apart := first.Dev != own.Dev && int64(size.Blocks)*int64(size.Bsize) <= volume.Size(bytes)
	for _, w := range writable[1:] {
		var s unix.Stat_t
		if err := unix.Stat(w, &s); err != nil {
			return h, err
		}
		apart = apart && s.Dev == first.Dev
	}
	if apart {
		return held{device: first.Dev, size: guard.Volume{Blocks: size.Blocks, Files: size.Files}, volume: writable[0], bytes: bytes}, nil
	}
	used, err := measure(writable, bytes)
	if err == nil && used.over(bytes) {
		err = fmt.Errorf("writable mounts hold %d bytes and %d files, more than the disk limit of %d bytes and %d files already", used.bytes, used.files, bytes, volume.Files(bytes))
	}
	return h, err
}

// usage is the space that files take.
type usage struct{ bytes, files int64 }

func (u usage) over(limit int64) bool { return u.bytes > limit || u.files > volume.Files(limit) }

// measure counts the files below directories, in whole blocks and at least one for each, until there are more than may be. A directory
// that was made unreadable is made readable: it belongs to whom this process belongs to, or cannot have been filled. Directories too deep
// to be measured are runtime.ErrDeep.
func measure(dirs []string, limit int64) (u usage, err error) {
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return u, fmt.Errorf("measuring %s: %w", dir, err)
		}
		open := func(name string, info fs.FileInfo) {
			if mode := info.Mode().Perm(); info.IsDir() && mode&0o500 != 0o500 {
				_ = root.Chmod(name, mode|0o500)
			}
		}
		if info, err := root.Stat("."); err == nil {
			open(".", info)
		}
		err = runtime.Walk(root, func(name string, info fs.FileInfo) error {
			open(name, info)
			s := info.Sys().(*syscall.Stat_t) // os.Root gives nothing else
			u.bytes += max(s.Blocks*512/max(int64(s.Nlink), 1), block)
			if u.files++; u.over(limit) {
				return fs.SkipAll
			}
			return nil
		})
		_ = root.Close()
		if err != nil || u.over(limit) {
			return u, err
		}
	}
	return u, nil
}

// removed counts files on these directories' disks that have no name any more and that the container of a process has open.
func removed(dirs []string, pid int) (total int64) {
	devices := map[uint64]bool{}
	for _, dir := range dirs {
		var s unix.Stat_t
		if unix.Stat(dir, &s) == nil {
			devices[s.Dev] = true
		}
	}
	seen := map[[2]uint64]bool{}
	for _, pid := range beside(pid) {
		open, _ := os.ReadDir(filepath.Join("/proc", pid, "fd"))
		for _, f := range open {
			name := filepath.Join("/proc", pid, "fd", f.Name())
			if to, err := os.Readlink(name); err != nil || !strings.HasSuffix(to, " (deleted)") {
				continue
			}
			var s unix.Stat_t
			if err := unix.Stat(name, &s); err != nil || s.Nlink != 0 || !devices[s.Dev] {
				continue
			}
			if id := [2]uint64{s.Dev, s.Ino}; !seen[id] {
				seen[id] = true
				total += s.Blocks * 512
			}
		}
	}
	return total
}

// beside lists the processes in the control group of a process.
func beside(pid int) []string {
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && f[1] != "pids" {
			continue
		}
		for _, under := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/" + f[1], "/sys/fs/cgroup/unified"} {
			b, err := os.ReadFile(filepath.Join(under, f[2], "cgroup.procs"))
			if all := strings.Fields(string(b)); err == nil && f[2] != "/" && slices.Contains(all, strconv.Itoa(pid)) {
				return all
			}
		}
	}
	return nil
}

// growth is the last measurements of an execution's files.
type growth struct {
	mu    sync.Mutex
	used  int64
	at    time.Time // of the last look's end
	rate  float64   // bytes in a second, between the last two
	began time.Time // of the look that goes on; zero: none does
}

func (g *growth) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began = time.Now()
}

func (g *growth) end(used int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.at.IsZero() {
		g.rate = float64(used-g.used) / max(now.Sub(g.at).Seconds(), 1e-3)
	}
	g.used, g.at, g.began = used, now, time.Time{}
}

// speed is bytes in a second; +Inf for files that cannot be looked through in time.
func (g *growth) speed() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.began.IsZero() && time.Since(g.began) > slowLook {
		return math.Inf(1)
	}
	return g.rate
}

// watchDisk ends the program when its measured mounts hold more than they may. It is the peer that looks: a guard has no more time than
// the program leaves it.
func (e *execution) watchDisk() {
	for failed := 0; ; {
		began, free := time.Now(), room(e.state.Measured[0])
		e.growth.begin()
		used, err := measure(e.state.Measured, e.state.DiskBytes)
		used.bytes += removed(e.state.Measured, e.state.Guard)
		e.growth.end(used.bytes)
		if failed++; err == nil {
			failed = 0
		}
		// Files that cannot be measured may not grow: a program that caused this would have the whole disk.
		if err == nil && used.over(e.state.DiskBytes) || errors.Is(err, runtime.ErrDeep) || failed > diskFailures {
			e.overDisk("over its limit")
			return
		}
		more, took := used, time.Since(began)
		for next := time.Now().Add(max(diskPoll, 10*took)); time.Now().Before(next) && !more.over(e.state.DiskBytes); {
			select {
			case <-e.over:
				return
			case <-e.gone:
				return
			case <-time.After(max(diskPoll, took)):
			}
			now := room(e.state.Measured[0])
			more = usage{used.bytes + free.bytes - now.bytes, used.files + free.files - now.files}
		}
	}
}

// room returns the free space of a directory's disk, or of a boundless one if the file system does not say.
func room(dir string) usage {
	free := usage{bytes: math.MaxInt64, files: math.MaxInt64}
	if s := (unix.Statfs_t{}); unix.Statfs(dir, &s) == nil {
		free.bytes = int64(s.Bavail) * int64(s.Bsize)
		if s.Files > 0 {
			free.files = int64(s.Ffree)
		}
	}
	return free
}

// overDisk ends the program for its writes.
func (e *execution) overDisk(why string) {
	e.logger.Warn("an execution is ended for its files", "id", e.id, "why", why)
	e.mu.Lock()
	e.full = true
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	err := e.resume(ctx)
	if err == nil {
		e.send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonDisk})
		err = e.force(ctx)
	}
	if err != nil && !errors.Is(err, runtime.ErrEnded) {
		e.logger.Warn("cannot end an execution at its disk limit", "id", e.id, "error", err)
	}
}

// fullAtEnd reports whether an execution that has ended had a volume without room.
func (e *execution) fullAtEnd() bool {
	var s unix.Statfs_t
	if e.state.Volume == "" || unix.Statfs(e.state.Volume, &s) != nil {
		return false
	}
	return s.Bfree < s.Blocks/256+1 || s.Ffree == 0
}

// overAtEnd reports whether an execution that has ended left more than it may.
func (e *execution) overAtEnd() bool {
	if len(e.state.Measured) == 0 {
		return false
	}
	used, err := measure(e.state.Measured, e.state.DiskBytes)
	return err == nil && used.over(e.state.DiskBytes) || errors.Is(err, runtime.ErrDeep)
}

// keepFloor ends, while a disk on which mounts are measured is nearly full, the execution that grows fastest there.
func (r *Runtime) keepFloor() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(floorPoll):
		}
		if e := r.growsFastest(); e != nil {
			e.overDisk("this machine's disk is nearly full, and they grow fastest")
		}
	}
}

// growsFastest is the execution with the fastest growing measured files on a disk that is nearly full, or nil.
func (r *Runtime) growsFastest() (worst *execution) {
	most := 0.0
	r.mine.Each(func(e *execution) {
		if len(e.state.Measured) == 0 || e.ended() {
			return
		}
		if speed := e.growth.speed(); speed > most && nearlyFull(e.state.Measured[0]) {
			worst, most = e, speed
		}
	})
	return worst
}

// nearlyFull reports whether a directory's disk has less room than is kept for the peer's own journal.
func nearlyFull(dir string) bool {
	free := room(dir)
	return free.bytes < volume.Reserve || free.files < floorFiles
}
