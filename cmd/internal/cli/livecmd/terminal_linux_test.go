package livecmd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet/pty"
)

func init() {
	// screen shows the sizes of its terminal and the keys it gets, and ends with 7 at a q.
	programtest.All["screen"] = func(p guest.Process) int {
		go func() {
			defer func() { _ = recover() }() // it ends with the program
			for {
				rows, cols := p.(guest.Terminal).NextSize()
				fmt.Fprintf(p.Stdout(), "size %dx%d\r\n", rows, cols)
			}
		}()
		for key := make([]byte, 1); ; {
			if _, err := p.Stdin().Read(key); err != nil {
				return 1
			}
			fmt.Fprintf(p.Stdout(), "key %02x\r\n", key)
			if key[0] == 'q' {
				return 7
			}
		}
	}
}

// onScreen runs a command of the light client as a process on a terminal of its own.
func (w *world) onScreen(t *testing.T, rows, cols uint16, args ...string) *pty.Terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = w.AsCommand()
	s, err := pty.Start(cmd, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestTerminal: exec -it on a real terminal, through a light client. The program there has the terminal's size as it changes
// and every key, Ctrl-C too; the terminal here is as before in the end, however that comes.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true}, false)}
	id := w.begin(t, "--out", "/out", filepath.Join(w.Files, "work.wasm"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(args ...string) *pty.Terminal {
		t.Helper()
		s := w.onScreen(t, 24, 80, append([]string{"exec", "-it", id, "--"}, args...)...)
		must(s.WaitFor(ctx, "size 24x80\r\n"))
		// What the program sends may be here before the terminal is set up: a key it has is proof that it is.
		must(s.Type("a"))
		must(s.WaitFor(ctx, "key 61\r\n"))
		if raw, err := s.Raw(); !raw || err != nil {
			t.Errorf("the terminal is not raw, %v", err)
		}
		return s
	}
	ends := func(s *pty.Terminal, want int) {
		t.Helper()
		code, err := s.Wait(ctx)
		must(err)
		if code != want {
			t.Errorf("exit code %d, want %d: %q", code, want, s.Shown())
		}
		if as, err := s.AsBefore(); !as || err != nil {
			t.Errorf("the terminal is not as before, %v", err)
		}
	}

	s := open("screen")
	must(s.Resize(30, 100))
	must(s.WaitFor(ctx, "size 30x100\r\n"))
	must(s.Type("\x03\x1a"))
	must(s.WaitFor(ctx, "key 03\r\nkey 1a\r\n"))
	must(s.Type("q"))
	ends(s, 7)

	// Ended from outside, and by the end of the job.
	s = open("screen")
	must(s.Signal(syscall.SIGTERM))
	ends(s, int(cli.ExitInterrupted))
	must(s.WaitFor(ctx, "interrupted; the command was ended, the job runs on"))
	s = open("screen")
	w.CLI(t, "stop", id).Want(t, cli.ExitOK)
	ends(s, int(cli.ExitFailed))
	must(s.WaitFor(ctx, "starling: attached stream closed: the job's program has ended"))

	s = w.onScreen(t, 24, 80, "exec", "-it", id, "--", "screen")
	ends(s, int(cli.ExitUsage))
}
