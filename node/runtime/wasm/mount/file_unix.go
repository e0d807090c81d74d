//go:build unix

package mount

import (
	"io/fs"
	"os"
	"syscall"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// links is the number of names a file has: 0 when it was removed while open.
func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// futimens sets the times of an open file, in nanoseconds since 1970, to the microsecond.
func futimens(f *os.File, atim, mtim int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st := sys.NewStat_t(info)
	if atim == experimentalsys.UTIME_OMIT {
		atim = st.Atim
	}
	if mtim == experimentalsys.UTIME_OMIT {
		mtim = st.Mtim
	}
	return unix.Futimes(int(f.Fd()), []unix.Timeval{unix.NsecToTimeval(atim), unix.NsecToTimeval(mtim)})
}
