package livecmd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/starling-network/starling/p2p/relay"
)

func TestMain(m *testing.M) { clitest.Main(m, rooms.Commands) }

func init() {
	// cat says its input again.
	programtest.All["cat"] = func(p guest.Process) int {
		if _, err := io.Copy(p.Stdout(), p.Stdin()); err != nil {
			return 1
		}
		return 0
	}
}

// TestLight runs the commands through a circuit of a light client's one entry, to a provider to which it has no connection.
func TestLight(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true}, false)}
	t.Run("group", func(t *testing.T) {
		t.Run("live", func(t *testing.T) { t.Parallel(); w.testLive(t) })
		t.Run("portforward", func(t *testing.T) { t.Parallel(); w.testPortForward(t) })
		t.Run("bulk", func(t *testing.T) { t.Parallel(); w.testBulk(t) })
	})
	w.WantRelayed(t)
}

// noise is n bytes that cannot be shorter on the way.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

// testBulk carries some MiB each way: through a command's standard input and output, as files and directories, and through
// a forwarded port.
func (w *world) testBulk(t *testing.T) {
	id := w.begin(t, "--out", "/out", filepath.Join(w.Files, "echo.wasm"))
	data := noise(3<<20 + 17)

	var out bytes.Buffer
	var errs clitest.Buffer
	a := w.App(&out, &errs)
	a.In = bytes.NewReader(data)
	if code := a.Run(t.Context(), []string{"exec", "-i", id, "--", "cat"}); code != 0 || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("exec: exit code %d, %d bytes: %s", code, out.Len(), errs.String())
	}

	dir := t.TempDir()
	for name, b := range map[string][]byte{"tree/one": data[:2<<20], "tree/sub/two": data[1<<20:], "file": data} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	same := func(name string, want []byte) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(b), err, len(want))
		}
	}
	w.CLI(t, "cp", filepath.Join(dir, "file"), id+":/out/single").Want(t, cli.ExitOK, `^file .*file copied to /out/single$`)
	w.CLI(t, "cp", filepath.Join(dir, "tree"), id+":/out").Want(t, cli.ExitOK, `^directory .*tree copied to /out$`)
	w.CLI(t, "cp", id+":/out/single", filepath.Join(dir, "back")).Want(t, cli.ExitOK, `^1 files with 3145745 bytes copied to .*back$`)
	same("back", data)
	w.CLI(t, "cp", id+":/out/tree", filepath.Join(dir, "again")).Want(t, cli.ExitOK, `^2 files with 4194321 bytes copied to .*again$`)
	same("again/one", data[:2<<20])
	same("again/sub/two", data[1<<20:])

	addr, end := w.forwarded(t, id)
	through, err := w.through(addr, data)
	if err != nil || !bytes.Equal(through, data) {
		t.Errorf("port-forward: %d bytes of %d came back, %v", len(through), len(data), err)
	}
	if said := end(); strings.Contains(said, "broke off") {
		t.Errorf("port-forward said %q", said)
	}
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
}

// TestLightSmallRelay checks the message when the entry's relay cuts a connection. Files of a job go on over the next one.
func TestLightSmallRelay(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true, Limits: relay.Limits{Data: 1 << 20}}, false)}
	data := noise(3 << 20)
	big := w.File(t, "big", string(data))
	job := []string{"-i", big + ":/in/big", "--out", "/out", filepath.Join(w.Files, "echo.wasm")}
	id := w.begin(t, job...)
	w.CLI(t, "status", id).Want(t, cli.ExitOK, `^warning +files of 3\.0 MiB go through a relay that ends a connection after 1\.0 MiB: they are brought in 4 parts or more`)
	const said = `cut by relay 12D3\w+, which ends a connection after 1\.0 MiB`
	const advice = `hint: send less at a time, use a relay or entry peer with a larger relay\.dataMiB, .*--direct`

	var out bytes.Buffer
	var errs clitest.Buffer
	a := w.App(&out, &errs)
	a.In = bytes.NewReader(data)
	code := a.Run(t.Context(), []string{"exec", "-i", id, "--", "cat"})
	clitest.Result{Code: code, Err: errs.String()}.Want(t, cli.ExitUnreachable, `^starling: the connection broke off: `+said, `^`+advice)
	w.CLI(t, "cp", big, id+":/out/big").Want(t, cli.ExitUnreachable, `^starling: copying to /out/big: .*`+said, `^`+advice)
	w.CLI(t, "cp", id+":/in/big", filepath.Join(t.TempDir(), "back")).Want(t, cli.ExitUnreachable, `^starling: copying /in/big: .*`+said, `^`+advice)

	addr, end := w.forwarded(t, id)
	if through, err := w.through(addr, data); err == nil {
		t.Errorf("port-forward: %d bytes came back and the end of them, though the relay cut the connection", len(through))
	}
	clitest.Result{Err: end()}.Want(t, cli.ExitOK, `^port 7000: `+said+`.*; `+advice)

	// What is small goes through, also after that.
	w.CLI(t, "exec", id, "--", "shout", "42").Want(t, 42)
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
}

// TestLightDirect: with --direct providers are dialled too, and what they are sent does not depend on the entry's relay, which
// here would cut it.
func TestLightDirect(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true, Limits: relay.Limits{Data: 1 << 20}}, true)}
	clitest.Eventually(t, "both providers are connected directly", func() bool {
		_ = w.CLI(t, "quote", "--max-price", "1", filepath.Join(w.Files, "work.wasm")) // has both asked
		return regexp.MustCompile(`(?m)^direct +2 connections to providers`).MatchString(w.CLI(t, "--direct", "client", "status").Out)
	})
	data := noise(3 << 20)
	big := w.File(t, "big", string(data))
	id := w.begin(t, "-i", big+":/in/big", "--out", "/out", filepath.Join(w.Files, "echo.wasm"))
	if s := w.CLI(t, "--direct", "status", id).Want(t, cli.ExitOK); strings.Contains(s.Out, "warning") {
		t.Errorf("a warning of the relay that is not used:\n%s", s.Out)
	}
	w.CLI(t, "--direct", "cp", big, id+":/out/big").Want(t, cli.ExitOK)
	back := filepath.Join(t.TempDir(), "back")
	w.CLI(t, "cp", id+":/out/big", back).Want(t, cli.ExitOK)
	if b, err := os.ReadFile(back); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes came back, %v", len(b), err)
	}
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
}

// TestLightTinyRelay: files that would never get through are refused when they are handed in, with what to do.
func TestLightTinyRelay(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true, Limits: relay.Limits{Data: 128 << 10}}, false)}
	w.CLI(t, "--direct", "ps").Want(t, cli.ExitUsage, `--direct: the light client runs already, without it`, `^hint: stop it with .starling client stop`)
	run := []string{"run", "-d", "--max-price", "1", "--budget", "1"}
	big := w.File(t, "big", string(noise(200<<10)))
	w.CLI(t, append(run, "-i", big+":/in/big", filepath.Join(w.Files, "echo.wasm"))...).Want(t, cli.ExitUsage,
		`job refused: files of 200\.0 KiB do not get through a relay that ends a connection after 128\.0 KiB; use one with relay.dataMiB of 1 or more, .* \(with --direct, .*--peer\)`)
	r := w.CLI(t, append(run, filepath.Join(w.Files, "echo.wasm"))...).Want(t, cli.ExitOK, `^j\w+$`)
	w.CLI(t, "stop", strings.TrimSpace(r.Out)).Want(t, cli.ExitOK)
}

// forwarded forwards a free port to port 7000 of the job until end is called, which returns what was said.
func (w *world) forwarded(t *testing.T, id string) (addr string, end func() string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs clitest.Buffer
	done := make(chan int, 1)
	go func() { done <- w.App(&out, &errs).Run(ctx, []string{"job", "port-forward", id, "0:7000"}) }()
	pattern := regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> port 7000 of rank 0$`)
	clitest.Eventually(t, "it listens", func() bool { return pattern.MatchString(out.String()) })
	return pattern.FindStringSubmatch(out.String())[1], func() string {
		interrupt()
		if code := <-done; code != 0 {
			t.Errorf("port-forward ended with %d: %s", code, errs.String())
		}
		return errs.String()
	}
}

// through sends data to an echo and returns what comes back, with the error that ended it.
func (w *world) through(addr string, data []byte) ([]byte, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	back, err := io.ReadAll(c)
	if err != nil {
		c.Close()
	}
	if sending := <-sent; err == nil {
		err = sending
	}
	if err != nil {
		err = fmt.Errorf("through %s: %w", addr, err)
	}
	return back, err
}
