// Package mount is the file system of a WASI program: an execution's mounts, with one quota over the writable ones.
// Paths are resolved within the mount's host directory.
package mount

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// FS is one mount as the guest sees it. Every path goes through os.Root, which resolves it component by component
// and follows no symlink out of the host directory. Links cannot be made: a guest leaves only files and directories.
type FS struct {
	experimentalsys.UnimplementedFS
	root     *os.Root
	readOnly bool
	quota    *Quota
	inodes   *inodes
}

// inodes renumbers inodes in the order they are seen and fixes times, for seeded executions. A nil one changes nothing.
type inodes struct {
	epoch int64 // of all times, nanoseconds since 1970
	seen  map[[2]uint64]uint64
}

func (x *inodes) fix(st sys.Stat_t) sys.Stat_t {
	if x == nil {
		return st
	}
	key := [2]uint64{st.Dev, st.Ino}
	if x.seen[key] == 0 {
		x.seen[key] = uint64(len(x.seen) + 1)
	}
	st.Dev, st.Ino = 1, x.seen[key]
	st.Atim, st.Mtim, st.Ctim = x.epoch, x.epoch, x.epoch
	st.Nlink = 1 // an input may be a link into the provider's store, or a copy where that is on another disk
	if st.Mode.IsDir() {
		st.Size = 0
	}
	return st
}

// errno converts an error of package os to one of WASI's.
func errno(err error) experimentalsys.Errno {
	var code syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return experimentalsys.UnwrapOSError(code)
	case errors.Is(err, fs.ErrNotExist):
		return experimentalsys.ENOENT
	case errors.Is(err, fs.ErrExist):
		return experimentalsys.EEXIST
	case errors.Is(err, fs.ErrClosed):
		return experimentalsys.EBADF
	case errors.Is(err, fs.ErrInvalid):
		return experimentalsys.EINVAL
	}
	return experimentalsys.EPERM // os.Root: the path escapes
}

// name makes a guest path one for os.Root: "" and "x/" are "." and "x".
func name(p string) string {
	if p = strings.TrimRight(p, "/"); p == "" {
		return "."
	}
	return p
}

// OpenFile opens a regular file or a directory; anything else in a mount is out of the guest's reach.
func (m *FS) OpenFile(
	p string, flag experimentalsys.Oflag, perm fs.FileMode,
) (experimentalsys.File, experimentalsys.Errno) {
	if m.quota.open >= maxOpen {
		return nil, experimentalsys.EAGAIN
	}
	p = name(p)
	write := flag&(experimentalsys.O_RDWR|experimentalsys.O_WRONLY|experimentalsys.O_TRUNC|experimentalsys.O_CREAT) != 0
	if flag&experimentalsys.O_NOFOLLOW != 0 {
		if l, err := m.root.Lstat(p); err == nil && l.Mode()&fs.ModeSymlink != 0 {
			return nil, experimentalsys.ELOOP
		}
	}
	info, err := m.root.Stat(p)
	exists := err == nil
	switch {
	case exists && info.IsDir():
		if flag&(experimentalsys.O_WRONLY|experimentalsys.O_TRUNC|experimentalsys.O_CREAT) != 0 {
			return nil, experimentalsys.EISDIR
		}
		write, flag = false, experimentalsys.O_RDONLY
	case exists && !info.Mode().IsRegular():
		return nil, experimentalsys.EACCES
	case exists && flag&experimentalsys.O_DIRECTORY != 0:
		return nil, experimentalsys.ENOTDIR
	case write && m.readOnly:
		return nil, experimentalsys.EROFS
	case !exists && flag&experimentalsys.O_CREAT == 0:
		return nil, errno(err)
	case !exists:
		if e := m.quota.take(block); e != 0 {
			return nil, e
		}
	}
	f, err := m.root.OpenFile(p, osFlags(flag), perm&0o777|0o600)
	if err != nil {
		return nil, errno(err)
	}
	return m.opened(f, flag, write)
}

func (m *FS) opened(f *os.File, flag experimentalsys.Oflag, write bool) (experimentalsys.File, experimentalsys.Errno) {
	info, err := f.Stat()
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() { // replaced between Stat and Open
		_ = f.Close()
		return nil, experimentalsys.EACCES
	}
	m.quota.open++
	of := &file{f: f, m: m, dir: info.IsDir(), append: flag&experimentalsys.O_APPEND != 0}
	if write {
		of.writable = true
		m.quota.writing[of] = struct{}{}
	}
	return of, 0
}

func osFlags(flag experimentalsys.Oflag) int {
	out := os.O_RDONLY
	switch {
	case flag&experimentalsys.O_RDWR != 0:
		out = os.O_RDWR
	case flag&experimentalsys.O_WRONLY != 0:
		out = os.O_WRONLY
	}
	for _, p := range [...]struct {
		guest experimentalsys.Oflag
		host  int
	}{
		{experimentalsys.O_CREAT, os.O_CREATE}, {experimentalsys.O_EXCL, os.O_EXCL},
		{experimentalsys.O_TRUNC, os.O_TRUNC},
		{experimentalsys.O_SYNC, os.O_SYNC},
	} {
		if flag&p.guest != 0 {
			out |= p.host
		}
	}
	return out | syscall.O_NONBLOCK
}

// Stat follows symlinks within the mount.
func (m *FS) Stat(p string) (sys.Stat_t, experimentalsys.Errno) {
	info, err := m.root.Stat(name(p))
	if err != nil {
		return sys.Stat_t{}, errno(err)
	}
	return m.inodes.fix(sys.NewStat_t(info)), 0
}

// Lstat does not follow a symlink at the end of the path.
func (m *FS) Lstat(p string) (sys.Stat_t, experimentalsys.Errno) {
	info, err := m.root.Lstat(name(p))
	if err != nil {
		return sys.Stat_t{}, errno(err)
	}
	return m.inodes.fix(sys.NewStat_t(info)), 0
}

// Readlink reads a symlink that the host put there.
func (m *FS) Readlink(p string) (string, experimentalsys.Errno) {
	target, err := m.root.Readlink(name(p))
	return target, errno(err)
}

// Mkdir makes a directory.
func (m *FS) Mkdir(p string, perm fs.FileMode) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	if e := m.quota.take(block); e != 0 {
		return e
	}
	return errno(m.root.Mkdir(name(p), perm&0o777|0o700))
}

// Rename moves within the mount.
func (m *FS) Rename(from, to string) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	return errno(m.root.Rename(name(from), name(to)))
}

// Rmdir removes an empty directory.
func (m *FS) Rmdir(p string) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	info, err := m.root.Lstat(name(p))
	switch {
	case err != nil:
		return errno(err)
	case !info.IsDir():
		return experimentalsys.ENOTDIR
	}
	return errno(m.root.Remove(name(p)))
}

// Unlink removes a file, or a symlink that the host put there.
func (m *FS) Unlink(p string) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	info, err := m.root.Lstat(name(p))
	switch {
	case err != nil:
		return errno(err)
	case info.IsDir():
		return experimentalsys.EISDIR
	}
	return errno(m.root.Remove(name(p)))
}

// Chmod sets the permission bits, but never takes the peer's own access away.
func (m *FS) Chmod(p string, perm fs.FileMode) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	return errno(m.root.Chmod(name(p), perm&0o777|0o700))
}

// Utimens sets the times; a negative one is left as it is.
func (m *FS) Utimens(p string, atim, mtim int64) experimentalsys.Errno {
	if m.readOnly {
		return experimentalsys.EROFS
	}
	return errno(m.root.Chtimes(name(p), nanos(atim), nanos(mtim)))
}

// nanos is the zero Time, which os leaves alone, for wazero's "omit".
func nanos(ns int64) time.Time {
	if ns == experimentalsys.UTIME_OMIT {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// Link is refused.
func (m *FS) Link(string, string) experimentalsys.Errno { return experimentalsys.EPERM }

// Symlink is refused.
func (m *FS) Symlink(string, string) experimentalsys.Errno { return experimentalsys.EPERM }
