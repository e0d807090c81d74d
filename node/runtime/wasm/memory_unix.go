//go:build unix

package wasm

import "golang.org/x/sys/unix"

func reserve(n uint64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func release(b []byte) {
	if b != nil {
		_ = unix.Munmap(b)
	}
}

// boundMemory makes the kernel refuse this process more than n bytes of data, whatever asks for it: a module's few
// bytes can name gigabytes of locals or elements, which the compiler would allocate. The Go runtime then ends the
// process.
func boundMemory(n uint64) error {
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: n, Max: n})
}
