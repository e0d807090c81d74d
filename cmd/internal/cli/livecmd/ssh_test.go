package livecmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/runtime/sftpd"
	"github.com/starling-network/starling/p2p"
)

// words is a program with other arguments.
type words struct {
	guest.Process
	args []string
}

func (w words) Args() []string { return w.args }

func init() {
	// The shell runs one program of these tests.
	programtest.All["/bin/sh"] = func(p guest.Process) int {
		line := strings.Fields(p.Args()[len(p.Args())-1])
		return programtest.All[line[0]](words{p, line[1:]})
	}
	programtest.All[runtime.GuardPath] = func(p guest.Process) int {
		if slices.Compare(p.Args(), sftpd.Args()[1:]) != 0 || sftpd.Serve(p.Stdin(), open{p}) != nil {
			return 1
		}
		return 0
	}
}

type open struct{ guest.Process }

func (o open) Write(p []byte) (int, error) { return o.Stdout().Write(p) }
func (open) Close() error                  { return nil }

// TestSSH runs the system's ssh against a job of a peer, and of a light client behind its entry.
func TestSSH(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		world func() *clitest.World
	}{
		{"peer", func() *clitest.World { return clitest.NewWorld(t, rooms.Commands, p2p.NAT{}) }},
		{"light", func() *clitest.World { return clitest.NewLightWorld(t, rooms.Commands, p2p.NAT{Serve: true}, false) }},
	} {
		w := &world{c.world()}
		t.Run(c.name, func(t *testing.T) { t.Parallel(); w.testSSH(t) })
	}
}

func (w *world) testSSH(t *testing.T) {
	id := w.begin(t, "--out", "/out", filepath.Join(w.Files, "echo.wasm"))
	config := w.CLI(t, "ssh", "--config", id).Want(t, cli.ExitOK, `^Host starling-`+id+`$`, `^  ProxyCommand .* ssh --stdio `+id+`/0$`, `^  StrictHostKeyChecking yes$`).Out
	w.CLI(t, "ssh", id+"/1").Want(t, cli.ExitUsage, `ranks 0 to 0, not 1`)
	w.CLI(t, "ssh", "--stdio", id, "ls").Want(t, cli.ExitUsage, `take one JOB, not "ls"`)
	w.CLI(t, "ssh").Want(t, cli.ExitUsage, `ssh needs an id`)
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Log("no ssh is installed: its client is not tested")
	} else {
		w.realSSH(t, id, config)
	}
	w.CLI(t, "stop", "--wait", id).Want(t, cli.ExitOK)
	w.CLI(t, "ssh", id).Want(t, cli.ExitFailed, `has ended: stopped`, `^hint: starling job rerun`)
}

// realSSH runs the system's ssh and scp.
func (w *world) realSSH(t *testing.T, id, config string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(input []byte, name string, args ...string) (code int, out []byte, errs string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = w.AsCommand()
		var o, e bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &o, &e
		err := cmd.Run()
		if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			return ended.ExitCode(), o.Bytes(), e.String()
		} else if err != nil {
			t.Error(err)
		}
		return 0, o.Bytes(), e.String()
	}
	code, out, errs := run([]byte("hello"), self, "ssh", id, "-o", "SetEnv=MORE=!", "shout", "42")
	if code != 42 || string(out) != "HELLO!" || errs != "42" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	data := noise(3<<20 + 17)
	if code, out, errs = run(data, self, "ssh", id+"/0", "cat"); code != 0 || !bytes.Equal(out, data) {
		t.Errorf("exit code %d, %d bytes: %s", code, len(out), errs)
	}
	if code, out, errs = run(data, self, "ssh", id, "-W", "localhost:7000"); code != 0 || !bytes.Equal(out, data) {
		t.Errorf("forwarded: exit code %d, %d bytes: %s", code, len(out), errs)
	}
	dir := t.TempDir()
	file, back, at := filepath.Join(dir, "config"), filepath.Join(dir, "back"), filepath.Join(dir, "there")
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), os.WriteFile(back, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{back, "starling-" + id + ":" + at}, {"starling-" + id + ":" + at, back + "2"}} {
		if code, _, errs = run(nil, "scp", append([]string{"-q", "-s", "-F", file}, args...)...); code != 0 {
			t.Errorf("scp %v: %d, %s", args, code, errs)
		}
	}
	if b, err := os.ReadFile(back + "2"); err != nil || !bytes.Equal(b, data) {
		t.Errorf("scp: %v, %d bytes came back", err, len(b))
	}
	if code, _, errs = run(nil, self, "ssh", id, "-o", "ExitOnForwardFailure=yes", "-R", "7001:localhost:7000", "cat"); code != 255 {
		t.Errorf("remote forwarding: exit code %d: %s", code, errs)
	}
}

// TestSSHConfig keeps entries in ssh's configuration.
func TestSSHConfig(t *testing.T) {
	t.Parallel()
	w := &world{clitest.NewWorld(t, rooms.Commands, p2p.NAT{})}
	home := t.TempDir()
	w.Env["HOME"] = home
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(home, ".ssh", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const own = "Host mine\n  User me\n"
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".ssh"), 0o700), os.WriteFile(filepath.Join(home, "dotfile"), []byte(own), 0o600),
		os.Symlink("../dotfile", filepath.Join(home, ".ssh", "config"))); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 2 {
		ids = append(ids, w.begin(t, "-n", fmt.Sprint(1+len(ids)), "--out", "/out", filepath.Join(w.Files, "echo.wasm")))
	}
	for _, id := range []string{ids[0], ids[1], ids[1]} {
		w.CLI(t, "ssh", "--config", "--write", id).Want(t, cli.ExitOK, "connect with `ssh starling-"+id+"`")
	}
	hosts := func() []string {
		return regexp.MustCompile(`(?m)^Host .*`).FindAllString(read("config.d/starling"), -1)
	}
	want := []string{"Host starling-" + ids[0], "Host starling-" + ids[1], "Host starling-" + ids[1] + "-1"}
	if got := hosts(); !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	if got := read("config"); got != "Include config.d/starling\n\n"+own {
		t.Errorf("configuration %q", got)
	}
	if to, err := os.Readlink(filepath.Join(home, ".ssh", "config")); err != nil || to != "../dotfile" {
		t.Errorf("the link of the configuration was replaced: %q, %v", to, err)
	}
	w.CLI(t, "stop", "--wait", ids[0]).Want(t, cli.ExitOK)
	w.CLI(t, "ssh", "--config", "--write", ids[1]+"/0").Want(t, cli.ExitOK)
	if got := hosts(); len(got) != 2 || !slices.Contains(got, want[1]) || !slices.Contains(got, want[2]) {
		t.Errorf("entries of %q after the first job's end", got)
	}
	w.CLI(t, "stop", "--wait", ids[1]).Want(t, cli.ExitOK)
}
