//go:build linux

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/testnet"
)

// said is what a command of starling printed and its exit code.
type said struct {
	out, err string
	code     int
}

func (s said) String() string {
	return fmt.Sprintf("exit code %d, %q, %q", s.code, tail(s.out), tail(s.err))
}

// tail is the end of a text, for an error.
func tail(s string) string {
	const most = 600
	return s[max(0, len(s)-most):]
}

// command is starling for a peer, with the secrets in its environment.
func (w *world) command(ctx context.Context, p *testnet.Peer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.Binary, append([]string{"--home", p.Home}, args...)...)
	cmd.Dir = w.Dir
	cmd.Env = append(os.Environ(), "TOKEN="+tokenSecret, "REGISTRY_PASSWORD="+registryPassword, "WRONG_PASSWORD="+badPassword)
	return cmd
}

// starling runs a command of the buyer's.
func (w *world) starling(ctx context.Context, args ...string) (said, error) {
	return w.fed(ctx, "", args...)
}

// fed does so with standard input.
func (w *world) fed(ctx context.Context, input string, args ...string) (said, error) {
	return run(w.command(ctx, w.buyer(), args...), input)
}

func run(cmd *exec.Cmd, input string) (said, error) {
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	s := said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	if _, ended := errors.AsType[*exec.ExitError](err); ended && s.code >= 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("starling %s: %w: %v", strings.Join(cmd.Args[3:], " "), err, s)
	}
	return s, err
}

// done runs a command that has to succeed, and returns what it printed.
func (w *world) done(ctx context.Context, args ...string) (string, error) {
	s, err := w.starling(ctx, args...)
	if err == nil && s.code != 0 {
		err = fmt.Errorf("starling %s: %v", strings.Join(args, " "), s)
	}
	return s.out, err
}

func (w *world) buyer() *testnet.Peer { return w.net.Buyers()[0] }

func (w *world) client() (*api.Client, error) { return w.buyer().Client() }

// job is a job as the buyer's peer has it.
func (w *world) job(ctx context.Context, id string) (buyer.Job, error) {
	c, err := w.client()
	if err != nil {
		return buyer.Job{}, err
	}
	return c.Job(ctx, id)
}

// provider is who runs rank 0 of a job.
func (w *world) provider(ctx context.Context, id string) (int, error) {
	j, err := w.job(ctx, id)
	if err != nil {
		return 0, err
	}
	for i, p := range w.net.Providers() {
		if p.Key == j.Ranks[0].Provider {
			return i, nil
		}
	}
	return 0, fmt.Errorf("job %s has no provider: %s", id, j.Summary())
}

// collected is a command that runs on, and what it printed so far.
type collected struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	out    bytes.Buffer
	exited chan struct{}
}

func (c *collected) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(b)
}

func (c *collected) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// waitFor waits until a text was printed so many times.
func (c *collected) waitFor(ctx context.Context, text string, times int) error {
	_, err := until(ctx, func() (bool, string, error) {
		seen := c.text()
		return strings.Count(seen, text) >= times, tail(seen), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %q: %w", text, err)
	}
	return nil
}

// follow starts a command that goes on until it ends or end is called; its standard output and errors are collected.
func (w *world) follow(args ...string) (*collected, error) {
	c := &collected{cmd: w.command(context.Background(), w.buyer(), args...), exited: make(chan struct{})}
	return c, c.start()
}

func (c *collected) start() error {
	c.cmd.Stdout, c.cmd.Stderr = c, c
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	return nil
}

// end interrupts the command and waits for it.
func (c *collected) end() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	<-c.exited
}
