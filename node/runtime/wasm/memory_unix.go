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
