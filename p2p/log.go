package p2p

import (
	"log/slog"

	"github.com/libp2p/go-libp2p/gologshim"
)

// LogTo sends libp2p's own log to h, so that a process has one log. Call it before the first host is made.
func LogTo(h slog.Handler) { gologshim.SetDefaultHandler(h) }
