package attached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// slow is a caller that takes no bytes before begin.
type slow struct {
	took  bytes.Buffer
	begin chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.begin
	return s.took.Write(p)
}

// The output of a program that has ended is whole although the caller takes it later than outputPatience, on pipes and on
// a terminal, and although something that the program started holds its output open.
func TestFinishSlow(t *testing.T) {
	t.Parallel()
	for _, tty := range []bool{false, true} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("terminal %v, held %v", tty, held), func(t *testing.T) {
				t.Parallel()
				out := &slow{begin: make(chan struct{})}
				std, text := written(t, runtime.Process{Stdout: out, TTY: tty})
				defer std.close()
				if !held {
					guard.CloseFiles(std.theirs)
					std.theirs = nil
				}
				time.AfterFunc(outputPatience+200*time.Millisecond, func() { close(out.begin) })
				std.finish(t.Context())
				if !bytes.Equal(out.took.Bytes(), text) {
					t.Errorf("%d of %d bytes were copied", out.took.Len(), len(text))
				}
			})
		}
	}
}

// written is the stdio of a program that wrote as much as fits while its caller takes nothing.
func written(t *testing.T, p runtime.Process) (std *stdio, text []byte) {
	t.Helper()
	std, err := newStdio(p)
	if err != nil {
		t.Fatal(err)
	}
	std.begin(p, func(runtime.Size) {})
	text = bytes.Repeat([]byte("0123456789"), 6_000) // less than a pipe
	if _, err := std.theirs[len(std.theirs)/2].Write(text); err != nil {
		t.Fatal(err)
	}
	return std, text
}

// A caller that takes nothing delays the report of the program's end only until it is gone.
func TestFinishGone(t *testing.T) {
	t.Parallel()
	out := &slow{begin: make(chan struct{})}
	std, _ := written(t, runtime.Process{Stdout: out})
	defer std.close()
	defer close(out.begin)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("gone")) })
	std.finish(ctx)
	if ctx.Err() == nil {
		t.Error("it returned before the caller had the output")
	}
}
