package gauge

import "golang.org/x/sys/unix"

// hide keeps a program of the same user from tracing this process. Where it fails the peer finds out: it computes what is opened again.
func hide() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
