package livecmd_test

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/p2p"
)

// TestIdle: a job with --idle stops when nothing is attached to it, and not while a command is.
func TestIdle(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewWorld(t, rooms.Commands, p2p.NAT{})}
	args := []string{"--idle", "10s", "--out", "/out", filepath.Join(w.Files, "echo.wasm")}
	used := w.begin(t, args...)
	in, hold := io.Pipe()
	defer hold.Close()
	var out, errs clitest.Buffer
	a := w.App(&out, &errs)
	a.In = in
	done := make(chan int, 1)
	go func() { done <- a.Run(t.Context(), []string{"exec", "-i", used, "--", "cat"}) }()
	if _, err := hold.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "the command is attached", func() bool { return out.String() == "x" })

	unused := w.begin(t, args...) // so its time of idleness begins later
	w.CLI(t, "status", unused).Want(t, cli.ExitOK, `^idle +stopped after 10s without use$`)
	w.CLI(t, "wait", unused).Want(t, cli.ExitFailed, `^`+unused+` stopped in`, `idle for 10s \(idle\)`)
	w.CLI(t, "status", used).Want(t, cli.ExitOK, `^state +running$`)

	hold.Close()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	w.CLI(t, "wait", used).Want(t, cli.ExitFailed, `idle for 10s \(idle\)`)
	w.CLI(t, "run", "--idle", "1s", "--max-price", "1", filepath.Join(w.Files, "echo.wasm")).Want(t, cli.ExitUsage, `--idle: .*10s`)
}
