package pour

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hugePage is the usual size of one, in bytes.
const hugePage = 2 << 20

// openDirect opens the file once more for writes that go past the page cache. It returns nil if its file system has
// none.
func openDirect(f *os.File) *os.File {
	d, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return d
}

// hugePages returns buffers out of size bytes, in huge pages if the kernel has them. A direct write passes each page to
// the disk separately, and 512 times as many pages cost more than the saved copy. release frees the memory.
func hugePages(size int) (get func(n int) []byte, release func()) {
	mem, err := unix.Mmap(-1, 0, size+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return aligned, func() {}
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	rest := mem[misaligned(mem, hugePage):]
	get = func(n int) []byte {
		b := rest[:n:n]
		rest = rest[n:]
		return b
	}
	return get, func() { _ = unix.Munmap(mem) }
}
