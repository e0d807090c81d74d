package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"golang.org/x/sys/unix"
)

const (
	// block is what every file and directory takes at least.
	block = 4096
	// diskPoll is the shortest time between two looks at the writable mounts; a look takes at most a tenth of the time.
	diskPoll = 50 * time.Millisecond
	// diskFailures is how many looks in a row may fail.
	diskFailures = 20
)

// watchDisk ends the program when its writable mounts hold more than they may.
func (g *guard) watchDisk() {
	if len(g.order.Writable) == 0 {
		return
	}
	for failed := 0; ; {
		began := time.Now()
		used, err := g.diskUsed()
		if failed++; err == nil {
			failed = 0
		}
		// What cannot be measured is not let grow: a program that made it so would have the whole disk.
		if err == nil && used > g.order.DiskBytes || errors.Is(err, runtime.ErrDeep) || failed > diskFailures {
			g.end(runtime.ReasonDisk)
			return
		}
		time.Sleep(max(diskPoll, 10*time.Since(began)))
	}
}

// diskUsed is the room taken in the writable mounts, also by files that were removed and are still open.
func (g *guard) diskUsed() (int64, error) {
	var total int64
	devices := map[uint64]bool{}
	for _, dir := range g.order.Writable {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return 0, fmt.Errorf("measuring %s: %w", dir, err)
		}
		n, err := DiskUsed(root)
		if info, err := root.Stat("."); err == nil {
			devices[uint64(sysStat(info).Dev)] = true
		}
		_ = root.Close()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total + removedUsed(devices), nil
}

// DiskUsed is the room that the files below root take, in bytes: whole blocks, at least one for each. A directory that was
// made unreadable is made readable: it belongs to whom this process belongs to, or cannot have been filled. Directories too
// deep to be measured are runtime.ErrDeep.
func DiskUsed(root *os.Root) (int64, error) {
	var total int64
	open := func(name string, info fs.FileInfo) {
		if mode := info.Mode().Perm(); info.IsDir() && mode&0o500 != 0o500 {
			_ = root.Chmod(name, mode|0o500)
		}
	}
	if info, err := root.Stat("."); err == nil {
		open(".", info)
	}
	err := runtime.Walk(root, func(name string, info fs.FileInfo) error {
		open(name, info)
		s := sysStat(info)
		total += max(int64(s.Blocks)*512/max(int64(s.Nlink), 1), block)
		return nil
	})
	return total, err
}

// removedUsed counts files without a name that the container's processes have open on these devices.
func removedUsed(devices map[uint64]bool) int64 {
	var total int64
	seen := map[[2]uint64]bool{}
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		if p.Name()[0] < '1' || p.Name()[0] > '9' || p.Name() == "1" {
			continue
		}
		dir := path.Join("/proc", p.Name(), "fd")
		open, _ := os.ReadDir(dir)
		for _, f := range open {
			name := path.Join(dir, f.Name())
			if to, err := os.Readlink(name); err != nil || !strings.HasSuffix(to, " (deleted)") {
				continue
			}
			var s unix.Stat_t
			if err := unix.Stat(name, &s); err != nil || s.Nlink != 0 || !devices[uint64(s.Dev)] {
				continue
			}
			if id := [2]uint64{uint64(s.Dev), s.Ino}; !seen[id] {
				seen[id] = true
				total += s.Blocks * 512
			}
		}
	}
	return total
}

func sysStat(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) } // os.Root gives nothing else
