package gauge

import "golang.org/x/sys/unix"

// hide keeps a program of the same user from tracing this process. If it fails the peer finds out: it computes the
// opened entries again.
func hide() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
