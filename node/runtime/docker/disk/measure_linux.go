package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
)

// Usage is the space that files take.
type Usage struct{ Bytes, Files int64 }

// Over reports whether these are more bytes, or more files, than a limit in bytes allows.
func (u Usage) Over(limit int64) bool { return u.Bytes > limit || u.Files > volume.Files(limit) }

// Measure counts the files below directories, in whole blocks and at least one for each, until there are more than may
// be. A directory that was made unreadable is made readable: it belongs to whom this process belongs to, or cannot have
// been filled. Directories too deep to be measured are runtime.ErrDeep.
func Measure(dirs []string, limit int64) (u Usage, err error) {
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
			u.Bytes += max(s.Blocks*512/max(int64(s.Nlink), 1), block)
			if u.Files++; u.Over(limit) {
				return fs.SkipAll
			}
			return nil
		})
		_ = root.Close()
		if err != nil || u.Over(limit) {
			return u, err
		}
	}
	return u, nil
}

// removed returns the bytes of deleted files on these directories' disks that the container of process pid has open.
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

// beside lists the processes in the control group of process pid.
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

// room returns the free space of a directory's disk, or of a boundless one if the file system does not say.
func room(dir string) Usage {
	free := Usage{Bytes: math.MaxInt64, Files: math.MaxInt64}
	if s := (unix.Statfs_t{}); unix.Statfs(dir, &s) == nil {
		free.Bytes = int64(s.Bavail) * int64(s.Bsize)
		if s.Files > 0 {
			free.Files = int64(s.Ffree)
		}
	}
	return free
}

// Over reports whether measured directories hold more than they may.
func Over(dirs []string, limit int64) bool {
	if len(dirs) == 0 {
		return false
	}
	used, err := Measure(dirs, limit)
	return err == nil && used.Over(limit) || errors.Is(err, runtime.ErrDeep)
}

// NearlyFull reports whether a directory's disk has less room than is kept for the peer's own journal.
func NearlyFull(dir string) bool {
	free := room(dir)
	return free.Bytes < volume.Reserve || free.Files < floorFiles
}
