package livecmd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/p2p"
)

func init() {
	// shout says its input in capitals, and ends with the number of its first argument.
	programtest.All["shout"] = func(p guest.Process) int {
		b, err := io.ReadAll(p.Stdin())
		if err != nil {
			return 1
		}
		var code int
		fmt.Sscan(p.Args()[0], &code)
		fmt.Fprint(p.Stdout(), strings.ToUpper(string(b)), programtest.Environ(p, "MORE"))
		fmt.Fprint(p.Stderr(), strings.Join(p.Args(), "|"))
		return code
	}
	// echo answers at port 7000.
	programtest.All["echo"] = func(p guest.Process) int {
		_ = p.Listen(7000, func(c io.ReadWriteCloser) { _, _ = io.Copy(c, c) })
		return 1
	}
}

// world is a world of all commands, with the tests that a peer and a light client share.
type world struct{ *clitest.World }

// TestLive runs the commands on a running job of a peer.
func TestLive(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewWorld(t, rooms.Commands, p2p.NAT{})}
	t.Run("live", func(t *testing.T) { t.Parallel(); w.testLive(t) })
	t.Run("portforward", func(t *testing.T) { t.Parallel(); w.testPortForward(t) })
}

// begin runs a module in the background and returns its id when it runs.
func (w *world) begin(t *testing.T, args ...string) string {
	t.Helper()
	id := strings.TrimSpace(w.CLI(t, append([]string{"run", "-d", "--max-price", "1", "--budget", "1"}, args...)...).Want(t, cli.ExitOK, `^j\w+$`).Out)
	clitest.Eventually(t, "the job runs", func() bool {
		return regexp.MustCompile(`(?m)^0 +running`).MatchString(w.CLI(t, "status", id).Out)
	})
	clitest.Eventually(t, "its files can be reached", func() bool { return w.CLI(t, "cp", id+":/out", "-").Code == 0 })
	return id
}

func (w *world) testLive(t *testing.T) {
	id := w.begin(t, "-i", filepath.Join(w.Files, "in", "0")+":/in", "--out", "/out", filepath.Join(w.Files, "work.wasm"))
	w.execs(t, id)
	w.copies(t, id)

	w.CLI(t, "job", "pause", id).Want(t, cli.ExitOK, `^`+id+` +paused$`)
	w.CLI(t, "ps").Want(t, cli.ExitOK, `^`+id[:8]+`\w* +work +paused +0/1`)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^state +running, paused; its units are held and paid for, .starling job resume `+id)
	w.CLI(t, "exec", id, "--", "shout", "0").Want(t, cli.ExitUsage, `the job is paused; resume it first`)
	w.CLI(t, "job", "resume", id).Want(t, cli.ExitOK, `^`+id+` +running$`)
	w.extends(t, id)
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
	w.CLI(t, "job", "extend", id, "1h").Want(t, cli.ExitUsage, `the job has stopped; .starling job rerun`)
	w.CLI(t, "exec", id, "--", "shout", "0").Want(t, cli.ExitUsage, `the job has stopped`)
	w.CLI(t, "job", "pause", id).Want(t, cli.ExitUsage, `the job is stopped`)
}

func (w *world) extends(t *testing.T, id string) {
	w.CLI(t, "ps").Want(t, cli.ExitOK, `^`+id[:8]+`\w* +work +running +0/1 +- +\d+\w +\d+m `)
	w.CLI(t, "job", "extend", id, "soon").Want(t, cli.ExitUsage, `"soon" is not a duration`, `^hint: write it as`)
	w.CLI(t, "job", "extend", id, "5m").Want(t, cli.ExitOK, `^job +`+id+`$`, `^time +1h5m0s in all$`, `^until +\d`,
		`^RANK +PROVIDER +STATE +LEASE UNTIL`, `^0 +\w{8} +extended +\d{4}-\S+ \S+ +0\.\d+ STAR`)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^until +\d.*starling job extend `+id)
	w.CLI(t, "job", "extend", id, "300h", "--budget", "1").Want(t, cli.ExitUsage, `a budget of 1.00 STAR is less than the job has`)
}

func (w *world) execs(t *testing.T, id string) {
	w.CLI(t, "exec", "-e", "MORE=!", id, "--", "shout", "42", "-x").Want(t, 42, `^!`, `42\|-x$`)
	var out, errs clitest.Buffer
	a := w.App(&out, &errs)
	a.In = strings.NewReader("hello")
	if code := a.Run(t.Context(), []string{"exec", "-i", id, "--", "shout", "0"}); code != 0 || out.String() != "HELLO" || errs.String() != "0" {
		t.Errorf("exit code %d, %q, %q", code, out.String(), errs.String())
	}
	w.CLI(t, "exec", id, "--", "nothing").Want(t, cli.ExitFailed, `no program \["nothing"\]`)
	w.CLI(t, "exec", id).Want(t, cli.ExitUsage, `^hint: it comes after --`)
	w.CLI(t, "exec", "-t", id, "--", "shout", "0").Want(t, cli.ExitUsage, `standard input is not a terminal`)
	w.CLI(t, "exec", "--rank", "7", id, "--", "shout", "0").Want(t, cli.ExitUsage, `ranks 0 to 0`)
	// An interrupt ends the command that waits for its input.
	ctx, interrupt := context.WithCancel(t.Context())
	in, hold := io.Pipe()
	defer hold.Close()
	a = w.App(&out, &errs)
	a.In = in
	done := make(chan int, 1)
	go func() { done <- a.Run(ctx, []string{"exec", "-i", id, "--", "shout", "0"}) }()
	if _, err := hold.Write([]byte("x")); err != nil { // it is read: the command runs
		t.Fatal(err)
	}
	interrupt()
	if code := <-done; code != int(cli.ExitInterrupted) {
		t.Errorf("exit code %d", code)
	}
}

func (w *world) copies(t *testing.T, id string) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	read := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	write("tree/a", "one")
	write("tree/sub/b", "two")
	w.CLI(t, "cp", filepath.Join(dir, "tree"), id+":/out").Want(t, cli.ExitOK, `^directory .*tree copied to /out$`)
	w.CLI(t, "cp", write("file", "three"), id+":/out/renamed").Want(t, cli.ExitOK)
	w.CLI(t, "cp", id+":/out/tree", filepath.Join(dir, "new")).Want(t, cli.ExitOK, `^2 files with 6 bytes copied to .*new$`)
	read("new/sub/b", "two")
	w.CLI(t, "cp", id+":/out/tree", filepath.Join(dir, "new")).Want(t, cli.ExitOK)
	read("new/tree/a", "one")
	w.CLI(t, "cp", id+":/out/renamed", dir).Want(t, cli.ExitOK)
	read("renamed", "three")
	w.CLI(t, "cp", id+":/out/tree/.", dir).Want(t, cli.ExitOK)
	read("sub/b", "two")
	w.CLI(t, "cp", id+":/in/name", filepath.Join(dir, "name")).Want(t, cli.ExitOK)
	read("name", "ada")

	r := w.CLI(t, "cp", id+":/out/tree", "-").Want(t, cli.ExitOK)
	if h, err := tar.NewReader(strings.NewReader(r.Out)).Next(); err != nil || h.Name != "tree/" {
		t.Errorf("%v, %v", h, err)
	}
	var out, errs clitest.Buffer
	a := w.App(&out, &errs)
	a.In = strings.NewReader(r.Out)
	if code := a.Run(t.Context(), []string{"cp", "-", id + ":/out/tree"}); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	w.CLI(t, "cp", id+":/out/tree/tree/a", filepath.Join(dir, "deep")).Want(t, cli.ExitOK)
	read("deep", "one")

	w.CLI(t, "cp", id+":/etc/passwd", dir).Want(t, cli.ExitUsage, `/etc/passwd is not below an input or output of the job; paths that can be read from: below /in, /out`)
	w.CLI(t, "cp", filepath.Join(dir, "file"), id+":/in/x").Want(t, cli.ExitUsage, `read-only; paths that can be written to: below /out`)
	w.CLI(t, "cp", filepath.Join(dir, "never"), id+":/out").Want(t, cli.ExitUsage, `no such file`)
	w.CLI(t, "cp", "a", "b").Want(t, cli.ExitUsage, `one argument must be ID:PATH`)
	w.CLI(t, "cp", write("big", strings.Repeat("x", 9<<20)), id+":/out").Want(t, cli.ExitUsage, `more than there is room for`)
}

func (w *world) testPortForward(t *testing.T) {
	id := strings.TrimSpace(w.CLI(t, "run", "-d", "--max-price", "1", "--budget", "1", filepath.Join(w.Files, "echo.wasm")).Want(t, cli.ExitOK, `^j\w+$`).Out)
	clitest.Eventually(t, "the job runs", func() bool {
		return regexp.MustCompile(`(?m)^0 +running`).MatchString(w.CLI(t, "status", id).Out)
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs clitest.Buffer
	done := make(chan int, 1)
	go func() { done <- w.App(&out, &errs).Run(ctx, []string{"job", "port-forward", id, "0:7000", "0:7001"}) }()
	pattern := regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> port (\d+) of rank 0$`)
	clitest.Eventually(t, "it listens", func() bool { return len(pattern.FindAllString(out.String(), -1)) == 2 })
	where := pattern.FindAllStringSubmatch(out.String(), -1)
	clitest.Eventually(t, "the program answers", func() bool {
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for i := range 3 {
			c, err := net.Dial("tcp", where[0][1])
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			text := []byte(fmt.Sprint("ping", i))
			if _, err := c.Write(text); err != nil {
				return false
			}
			buf := make([]byte, len(text))
			if _, err := io.ReadFull(c, buf); err != nil || !bytes.Equal(buf, text) {
				return false
			}
		}
		return true
	})
	c, err := net.Dial("tcp", where[1][1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("port 7001 answers")
	}
	c.Close()
	clitest.Eventually(t, "the error is said", func() bool { return strings.Contains(errs.String(), "port 7001: no answer from the program") })
	interrupt()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	w.CLI(t, "job", "port-forward", id, "http").Want(t, cli.ExitUsage, `"http" is not a port`)
	w.CLI(t, "job", "port-forward", id).Want(t, cli.ExitUsage, `needs an id and a port`)
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
	w.CLI(t, "job", "port-forward", id, "0:7000").Want(t, cli.ExitFailed, `has ended: stopped`, `^hint: starling job rerun`)
}
