//go:build linux

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/pty"
	"github.com/starling-network/starling/testnet/scenarios"
)

// shellPrograms are programs of this machine that the image of workplaces has too, each where it is here.
var shellPrograms = []string{"sh", "cat", "rsync"}

// workplaces is the part of the scenario with containers in which users work.
type workplaces struct{ *world }

// pushShell pushes an image with a shell, and rsync if this machine has it.
func (w workplaces) pushShell() (string, error) {
	var files []engine.File // the first one is the entrypoint
	had := map[string]bool{}
	add := func(path string) {
		if !had[path] {
			had[path] = true
			files = append(files, engine.File{Path: path, From: path})
		}
	}
	for _, name := range shellPrograms {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		files = append(files, engine.File{Path: "/bin/" + name, From: path})
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			return "", fmt.Errorf("libraries of %s: %w", path, err)
		}
		for _, lib := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(string(out), -1) {
			add(lib)
		}
	}
	files = append(files, engine.File{Path: "/box", From: filepath.Join(w.Dir, "box")})
	return w.registry.Push("shell", nil, files...)
}

// use checks run -it, and ssh, scp, sftp and rsync into a container that waits for its user.
func (w workplaces) use(ctx context.Context) (got string, err error) {
	if _, err := exec.LookPath("ssh"); err != nil {
		return "no ssh is installed here: not shown", nil
	}
	image, err := w.pushShell()
	if err != nil {
		return "", err
	}
	if err := w.terminal(ctx, image); err != nil {
		return "", err
	}
	out, err := w.done(ctx, "run", "-d", "-it", "--max-price", "1", "--budget", "0.5", "--timeout", "5m", "-e",
		"PS1=there> ", image)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(out)
	defer func() {
		_, stopped := w.done(context.WithoutCancel(ctx), "stop", "--wait", id)
		err = errors.Join(err, stopped)
	}()
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		s, err := w.starling(ctx, "exec", id, "--", "/box", "exit", "3")
		return s.Code == 3, s.String(), err
	}); err != nil {
		return "", err
	}
	s := sshTools{world: w.world, id: id, dir: filepath.Join(w.Dir, "ssh"), data: make([]byte, 3<<20)}
	_, _ = rand.NewChaCha8([32]byte{5}).Read(s.data)
	return s.use(ctx)
}

// terminal runs an interactive shell, whose end ends the job.
func (w workplaces) terminal(ctx context.Context, image string) error {
	t, err := pty.Start(w.command(ctx, w.buyer(), "run", "-it", "--max-price", "1", "--budget", "0.5",
		"--timeout", "5m", "-e", "PS1=there> ", image), 24, 80)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := errors.Join(t.WaitFor(ctx, "there> "), t.Type("echo a$((6*7))b\r"), t.WaitFor(ctx, "a42b\r\n"),
		t.Type("exit 5\r")); err != nil {
		return fmt.Errorf("run -it shows %q: %w", t.Shown(), err)
	}
	if err := t.WaitFor(ctx, " stopped in "); err != nil {
		return fmt.Errorf("run -it did not stop its job: %q: %w", t.Shown(), err)
	}
	if code, err := t.Wait(ctx); err != nil || code != 5 {
		return fmt.Errorf("run -it ended with %d: %q: %w", code, t.Shown(), err)
	}
	return nil
}

// sshTools are programs of this machine on a job.
type sshTools struct {
	*world
	id, dir string
	data    []byte
}

func (s sshTools) use(ctx context.Context) (string, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", err
	}
	config, err := s.done(ctx, "ssh", "--config", s.id)
	if err != nil {
		return "", err
	}
	file := filepath.Join(s.dir, "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", err
	}
	cmd := s.command(ctx, s.buyer(), "ssh", s.id, "cat; exit 42")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(s.data), &out
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 42 || !bytes.Equal(out.Bytes(), s.data) {
		return "", fmt.Errorf("ssh: %d of %d bytes were echoed: %w", out.Len(), len(s.data), err)
	}
	if err := s.terminal(ctx); err != nil {
		return "", err
	}
	from, host := filepath.Join(s.dir, "from"), "starling-"+s.id
	if err := os.WriteFile(from, s.data, 0o600); err != nil {
		return "", err
	}
	batch := filepath.Join(s.dir, "batch")
	commands := "mkdir /tmp/sub\nput " + from + " /tmp/sub/two\nget /tmp/sub/two " + from + "3\n"
	if err := os.WriteFile(batch, []byte(commands), 0o600); err != nil {
		return "", err
	}
	steps := [][]string{
		{"scp", "-q", "-s", "-F", file, from, host + ":/tmp/one"},
		{"scp", "-q", "-s", "-F", file, host + ":/tmp/one", from + "2"},
		{"sftp", "-q", "-F", file, "-b", batch, host},
	}
	back, with := []string{from + "2", from + "3"}, "scp, sftp"
	if _, err := exec.LookPath("rsync"); err == nil {
		steps = append(steps, []string{"rsync", "-a", "-e", "ssh -F " + file, from, host + ":/tmp/three"},
			[]string{"rsync", "-a", "-e", "ssh -F " + file, host + ":/tmp/three", from + "4"})
		back, with = append(back, from+"4"), with+" and rsync"
	}
	for _, args := range steps {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, name := range back {
		if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, s.data) {
			return "", fmt.Errorf("%s came back with %d bytes of %d: %w", name, len(b), len(s.data), err)
		}
	}
	return fmt.Sprintf("run -it; ssh with and without a terminal, %s carry %d bytes each way", with, len(s.data)), nil
}

// terminal opens a shell by ssh.
func (s sshTools) terminal(ctx context.Context) error {
	t, err := pty.Start(s.command(ctx, s.buyer(), "ssh", s.id), 24, 80)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := errors.Join(t.WaitFor(ctx, "there> "), t.Type("echo $TERM-$((6*7)) $0; exit 7\r"),
		t.WaitFor(ctx, "-42 ")); err != nil {
		return fmt.Errorf("ssh on a terminal shows %q: %w", t.Shown(), err)
	}
	if code, err := t.Wait(ctx); err != nil || code != 7 {
		return fmt.Errorf("ssh on a terminal ended with %d: %q: %w", code, t.Shown(), err)
	}
	return nil
}

var notebookAddress = regexp.MustCompile(`(?m)^(http://127\.0\.0\.1:\d+)/\?token=(\w+)$`)

// notebook checks that a notebook's server answers here, to its token, and ends with the command.
func (w workplaces) notebook(ctx context.Context) (string, error) {
	c, err := w.follow("notebook", "--image", w.image, "--max-price", "1", "--budget", "0.5", "--timeout", "5m",
		"--scratch", "100Mi", "--", "notebook")
	if err != nil {
		return "", err
	}
	defer c.End()
	if err := c.WaitFor(ctx, "/?token=", 1); err != nil {
		return "", err
	}
	m := notebookAddress.FindStringSubmatch(c.Text())
	if m == nil {
		return "", fmt.Errorf("no address in %q", c.Text())
	}
	for url, want := range map[string]string{m[0]: "200 OK /scratch", m[1] + "/?token=x": "403 Forbidden"} {
		resp, err := http.Get(url)
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := strings.TrimSpace(resp.Status + " " + string(b)); err != nil || got != want {
			return "", fmt.Errorf("the notebook answers %q, want %q: %w", got, want, err)
		}
	}
	c.End()
	code, err := c.Wait(ctx)
	if err != nil || code != 0 || !strings.Contains(c.Text(), " stopped in ") {
		return "", fmt.Errorf("an interrupted notebook ended with %d: %q: %w", code, c.Text(), err)
	}
	return "its address answers to its token, and the interrupt stopped the job", nil
}
