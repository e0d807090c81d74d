// Package clitest helps to test commands: peers in one process, a light client, command results and output, and
// credential helpers of docker.
package clitest

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
)

// Eventually waits at most a minute for ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !ok(); {
		select {
		case <-end:
			t.Fatalf("after a minute it is not so that %s", what)
		case <-tick.C:
		}
	}
}

// Run runs the command line as Main does, with another command in place of the real ones.
func Run(t *testing.T, c func(*cli.App) *cobra.Command, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &cli.App{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(string) string { return "" },
		Commands: []func(*cli.App) *cobra.Command{c}}
	code = a.Run(t.Context(), args)
	return code, o.String(), e.String()
}

// Result is the exit code and the output of one command.
type Result struct {
	Code     int
	Out, Err string
}

// Want checks a command's exit code and that its output matches the patterns.
func (r Result) Want(t testing.TB, code cli.ExitCode, patterns ...string) Result {
	t.Helper()
	ok := r.Code == int(code)
	for _, p := range patterns {
		ok = ok && matcher(p).MatchString(r.Out+r.Err)
	}
	if !ok {
		t.Fatalf("exit code %d, want %d with %q\nstdout:\n%s\nstderr:\n%s", r.Code, code, patterns, r.Out, r.Err)
	}
	return r
}

// matcher compiles a pattern in multi-line mode: ^ and $ match at line ends.
func matcher(pattern string) *regexp.Regexp { return regexp.MustCompile("(?m)" + pattern) }

// Buffer is bytes.Buffer for a command and a test at once.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
