package mount

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// file is an open file or directory of a mount.
type file struct {
	f        *os.File
	m        *FS
	dir      bool
	writable bool
	append   bool
	entries  []experimentalsys.Dirent // of a directory, sorted; read once until it is rewound
	listed   bool
}

func (f *file) stat() (sys.Stat_t, experimentalsys.Errno) {
	info, err := f.f.Stat()
	if err != nil {
		return sys.Stat_t{}, errno(err)
	}
	return f.m.inodes.fix(sys.NewStat_t(info)), 0
}

func (f *file) Stat() (sys.Stat_t, experimentalsys.Errno) { return f.stat() }

func (f *file) Dev() (uint64, experimentalsys.Errno) {
	st, e := f.stat()
	return st.Dev, e
}

func (f *file) Ino() (sys.Inode, experimentalsys.Errno) {
	st, e := f.stat()
	return st.Ino, e
}

func (f *file) IsDir() (bool, experimentalsys.Errno) { return f.dir, 0 }
func (f *file) IsAppend() bool                       { return f.append }

func (f *file) SetAppend(enable bool) experimentalsys.Errno {
	if f.dir {
		return experimentalsys.EISDIR
	}
	f.append = enable
	return 0
}

func (f *file) Read(b []byte) (int, experimentalsys.Errno) {
	if f.dir {
		return 0, experimentalsys.EISDIR
	}
	if len(b) == 0 {
		return 0, 0
	}
	n, err := f.f.Read(b)
	return n, readErrno(err)
}

func (f *file) Pread(b []byte, off int64) (int, experimentalsys.Errno) {
	switch {
	case f.dir:
		return 0, experimentalsys.EISDIR
	case off < 0:
		return 0, experimentalsys.EINVAL
	case len(b) == 0:
		return 0, 0
	}
	n, err := f.f.ReadAt(b, off)
	return n, readErrno(err)
}

func readErrno(err error) experimentalsys.Errno {
	if errors.Is(err, io.EOF) {
		return 0
	}
	return errno(err)
}

// fileOffset keeps go vet from taking wazero's Seek for a misspelt io.Seeker.
type fileOffset = int64

func (f *file) Seek(offset fileOffset, whence int) (int64, experimentalsys.Errno) {
	if f.dir {
		if offset != 0 || whence != io.SeekStart {
			return 0, experimentalsys.EISDIR
		}
		f.entries, f.listed = nil, false
		return 0, 0
	}
	if uint(whence) > io.SeekEnd {
		return 0, experimentalsys.EINVAL
	}
	n, err := f.f.Seek(offset, whence)
	return n, errno(err)
}

func (f *file) Write(b []byte) (int, experimentalsys.Errno) {
	if e := f.mayWrite(); e != 0 {
		return 0, e
	}
	whence := io.SeekCurrent
	if f.append {
		whence = io.SeekEnd
	}
	off, err := f.f.Seek(0, whence)
	if err != nil {
		return 0, errno(err)
	}
	if e := f.grow(off, int64(len(b))); e != 0 {
		return 0, e
	}
	n, err := f.f.Write(b)
	return n, errno(err)
}

func (f *file) Pwrite(b []byte, off int64) (int, experimentalsys.Errno) {
	if e := f.mayWrite(); e != 0 {
		return 0, e
	}
	if off < 0 {
		return 0, experimentalsys.EINVAL
	}
	if e := f.grow(off, int64(len(b))); e != 0 {
		return 0, e
	}
	n, err := f.f.WriteAt(b, off)
	return n, errno(err)
}

func (f *file) mayWrite() experimentalsys.Errno {
	switch {
	case f.dir:
		return experimentalsys.EISDIR
	case !f.writable:
		return experimentalsys.EBADF
	}
	return 0
}

// grow reserves quota for the growth of the file by writing n bytes at off.
func (f *file) grow(off, n int64) experimentalsys.Errno {
	if off > math.MaxInt64/4 || n > math.MaxInt64/4 {
		return experimentalsys.EINVAL
	}
	info, err := f.f.Stat()
	if err != nil {
		return errno(err)
	}
	return f.m.quota.take(blocks(off+n) - blocks(info.Size()))
}

func (f *file) Truncate(size int64) experimentalsys.Errno {
	if e := f.mayWrite(); e != 0 {
		return e
	}
	if size < 0 {
		return experimentalsys.EINVAL
	}
	if e := f.grow(size, 0); e != 0 {
		return e
	}
	return errno(f.f.Truncate(size))
}

// Readdir gives entries sorted by name, so that a program sees the same order on every machine.
func (f *file) Readdir(n int) ([]experimentalsys.Dirent, experimentalsys.Errno) {
	if !f.dir {
		return nil, experimentalsys.ENOTDIR
	}
	if !f.listed {
		if e := f.list(); e != 0 {
			return nil, e
		}
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	out := f.entries[:n]
	f.entries = f.entries[n:]
	return out, 0
}

func (f *file) list() experimentalsys.Errno {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return errno(err)
	}
	infos, err := f.f.Readdir(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errno(err)
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return strings.Compare(a.Name(), b.Name()) })
	f.entries = make([]experimentalsys.Dirent, len(infos))
	for i, info := range infos {
		st := f.m.inodes.fix(sys.NewStat_t(info))
		f.entries[i] = experimentalsys.Dirent{Ino: st.Ino, Name: info.Name(), Type: info.Mode().Type()}
	}
	f.listed = true
	return 0
}

func (f *file) Sync() experimentalsys.Errno     { return errno(f.f.Sync()) }
func (f *file) Datasync() experimentalsys.Errno { return errno(f.f.Sync()) }

func (f *file) Utimens(atim, mtim int64) experimentalsys.Errno {
	if f.m.readOnly {
		return experimentalsys.EROFS
	}
	return errno(futimens(f.f, atim, mtim))
}

func (f *file) Close() experimentalsys.Errno {
	err := f.f.Close()
	if !errors.Is(err, fs.ErrClosed) {
		f.m.quota.open--
		delete(f.m.quota.writing, f)
	}
	return errno(err)
}
