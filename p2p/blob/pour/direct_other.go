//go:build !linux

package pour

import "os"

// openDirect is for Linux only: elsewhere writes go through the page cache.
func openDirect(*os.File) *os.File { return nil }

// hugePages is for direct writes only.
func hugePages(int) (get func(n int) []byte, release func()) { return aligned, func() {} }
