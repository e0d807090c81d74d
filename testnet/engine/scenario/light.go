//go:build linux

package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet/pty"
	"github.com/starling-network/starling/testnet/scenarios"
)

// laptop is a light client with the buyer as its only entry.
type laptop struct {
	*world
	entry string
	dir   string
	id    string // of its job
}

// command returns a starling command on the laptop.
func (l *laptop) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.Binary, args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), "STARLING_HOME="+filepath.Join(l.dir, "home"), "STARLING_PEER="+l.entry,
		"XDG_CACHE_HOME="+filepath.Join(l.Dir, "cache"))
	return cmd
}

func (l *laptop) done(ctx context.Context, args ...string) (string, error) {
	s, err := run(l.command(ctx, args...), "")
	if err == nil && s.Code != 0 {
		err = fmt.Errorf("starling %s: %v", strings.Join(args, " "), s)
	}
	return s.Out, err
}

// light checks that a laptop outside the network can use a container like a local one, through its entry.
func (w *world) light(ctx context.Context) (got string, err error) {
	c, err := w.client()
	if err != nil {
		return "", err
	}
	info, err := api.GetNode.Call(ctx, c, api.None{})
	if err != nil {
		return "", err
	}
	l := &laptop{world: w, entry: info.Addrs[0], dir: filepath.Join(w.Dir, "laptop")}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return "", err
	}
	defer func() {
		_, stopped := l.done(context.WithoutCancel(ctx), "client", "stop")
		err = errors.Join(err, stopped)
	}()
	if err := l.begin(ctx); err != nil {
		return "", err
	}
	data := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(data)
	for _, step := range []func(context.Context, []byte) error{l.execs, l.onTerminal, l.copies, l.forwards} {
		if err := step(ctx, data); err != nil {
			return "", err
		}
	}
	peers, err := l.done(ctx, "peer", "ls")
	if err != nil {
		return "", err
	}
	if strings.Count(peers, " direct ") != 1 || !strings.Contains(peers, " relayed ") {
		return "", fmt.Errorf("the laptop has other direct connections than to its entry: %q", peers)
	}
	_, err = l.done(ctx, "stop", "--wait", l.id)
	return "exec, exec -it, cp and port-forward with 3 MiB each way, all through its entry", err
}

// begin funds the laptop's wallet and waits until its job runs.
func (l *laptop) begin(ctx context.Context) error {
	out, err := l.done(ctx, "wallet", "show", "-o", "json")
	if err != nil {
		return err
	}
	var wallet struct {
		Owner sign.Key `json:"owner"`
	}
	if err := json.Unmarshal([]byte(out), &wallet); err != nil {
		return fmt.Errorf("the laptop's wallet: %w", err)
	}
	if err := l.net.Chain().FundKey(ctx, wallet.Owner, 10_000_000, 1_000_000_000); err != nil {
		return err
	}
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		s, err := run(l.command(ctx, "run", "-d", "--max-price", "1", "--budget", "0.5", "--timeout", "5m", "--out",
			"/out", l.image, "--", "echo"), "")
		if err == nil && s.Code != 0 && !strings.Contains(s.Err, "the chain has not answered yet") {
			err = scenarios.ErrFinal
		}
		out = s.Out
		return s.Code == 0, s.String(), err
	}); err != nil {
		return err
	}
	l.id = strings.TrimSpace(out)
	_, err = scenarios.Until(ctx, func() (bool, string, error) {
		out, err := l.done(ctx, "logs", l.id)
		if err != nil || strings.Contains(out, "echoing") {
			return true, scenarios.Tail(out), err
		}
		return false, scenarios.Tail(out), l.unended(ctx)
	})
	return err
}

// unended returns an ErrFinal with all decisions if the laptop's job has ended.
func (l *laptop) unended(ctx context.Context) error {
	out, err := l.done(ctx, "status", l.id, "-o", "json")
	if err != nil {
		return err
	}
	var j record.Job
	if err := json.Unmarshal([]byte(out), &j); err != nil {
		return fmt.Errorf("the laptop's job: %w", err)
	}
	if _, over := j.Result(); !over {
		return nil
	}
	why, err := l.done(ctx, "why", l.id)
	return errors.Join(fmt.Errorf("%w: the job is %s\n%s", scenarios.ErrFinal, j.State, why), err)
}

func (l *laptop) execs(ctx context.Context, data []byte) error {
	cmd := l.command(ctx, "exec", "-i", l.id, "--", "/box", "cat")
	cmd.Stdin = bytes.NewReader(data)
	if out, err := cmd.Output(); err != nil || !bytes.Equal(out, data) {
		return fmt.Errorf("exec: %d bytes were echoed: %w", len(out), err)
	}
	if s, err := run(l.command(ctx, "exec", l.id, "--", "/box", "exit", "42"), ""); err != nil || s.Code != 42 {
		return fmt.Errorf("exec of a command that exits with 42: %v: %w", s, err)
	}
	return nil
}

// onTerminal runs a shell: the container's terminal has the size of the local one, and Ctrl-C ends the command in the
// container.
func (l *laptop) onTerminal(ctx context.Context, _ []byte) error {
	t, err := pty.Start(l.command(ctx, "exec", "-it", l.id, "--", "/probe", "tty"), 24, 80)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.WaitFor(ctx, "24x80\r\n"); err != nil {
		return err
	}
	if err := errors.Join(t.Resize(30, 100), t.WaitFor(ctx, "30x100\r\n"), t.Type("\x03")); err != nil {
		return err
	}
	code, err := t.Wait(ctx)
	if err != nil || code != 130 {
		return fmt.Errorf("after Ctrl-C the exit code is %d: %q: %w", code, t.Shown(), err)
	}
	if as, err := t.AsBefore(); err != nil || !as {
		return fmt.Errorf("the terminal's mode was not restored: %w", err)
	}
	return nil
}

func (l *laptop) copies(ctx context.Context, data []byte) error {
	files := map[string][]byte{"one": data[:2<<20], "sub/two": data[1<<20:]}
	for name, b := range files {
		p := filepath.Join(l.dir, "tree", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o600)); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"cp", "tree", l.id + ":/out"}, {"cp", l.id + ":/out/tree", "back"},
		{"cp", "tree/one", l.id + ":/out/one"}, {"cp", l.id + ":/out/one", "back/three"}} {
		if _, err := l.done(ctx, args...); err != nil {
			return err
		}
	}
	files["three"] = files["one"]
	for name, want := range files {
		if b, err := os.ReadFile(filepath.Join(l.dir, "back", name)); err != nil || !bytes.Equal(b, want) {
			return fmt.Errorf("%s was copied back with %d bytes of %d: %w", name, len(b), len(want), err)
		}
	}
	return nil
}

var echoing = regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> port 7000 of rank 0$`)

func (l *laptop) forwards(ctx context.Context, data []byte) error {
	c, err := scenarios.Follow(scenarios.Command{Cmd: l.command(ctx, "job", "port-forward", l.id, "0:7000")})
	if err != nil {
		return err
	}
	defer c.End()
	if err := c.WaitFor(ctx, "-> port 7000", 1); err != nil {
		return err
	}
	m := echoing.FindStringSubmatch(c.Text())
	if m == nil {
		return fmt.Errorf("port-forward: unexpected output %q", c.Text())
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", m[1])
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		sent <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	back, err := io.ReadAll(conn)
	if err == nil {
		err = <-sent
	}
	if err != nil || !bytes.Equal(back, data) {
		return fmt.Errorf("%d of %d bytes were echoed through the port: %w: %s", len(back), len(data), err, c.Text())
	}
	return nil
}
