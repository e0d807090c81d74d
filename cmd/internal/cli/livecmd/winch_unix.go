//go:build unix

package livecmd

import (
	"os"
	"os/signal"
	"syscall"
)

// watchSize calls changed whenever the terminal's size has changed, until stop is called.
func watchSize(changed func()) (stop func()) {
	sizes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(sizes, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			case <-sizes:
				changed()
			}
		}
	}()
	return func() {
		signal.Stop(sizes)
		close(done)
		<-over
	}
}
