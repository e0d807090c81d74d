package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// maxLog is the size at which the log of earlier background programs is renamed.
const maxLog = 10 << 20

// Background is a peer or light client that this program runs in the background.
type Background struct {
	Name     string   // for errors: "light client"
	Home     string   // its home directory, in which it answers
	Log      string   // its log file in Home
	Args     []string // of this program
	Patience time.Duration
}

// Answering returns the API of a running peer or agent on home, or nil if none answers.
func Answering(ctx context.Context, home string) *api.Client {
	c, err := api.Dial(home, config.FileAPI)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := api.GetNode.Call(ctx, c, api.None{}); err != nil {
		return nil
	}
	return c
}

// Start runs the program detached from the terminal, waits until it answers, and returns its API. Another process that
// answers first is as good.
func (b Background) Start(ctx context.Context) (*api.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	path := filepath.Join(b.Home, b.Log)
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		_ = os.Rename(path, path+".old")
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", b.Name, err)
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", b.Name, err)
	}
	cmd := exec.Command(self, b.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", b.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, b.Patience)
	defer cancel()
	for {
		if c := Answering(ctx, b.Home); c != nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, &Error{Code: ExitUnreachable, Err: fmt.Errorf("the %s does not answer: %w", b.Name, ctx.Err()),
				Hint: "its log is " + path}
		case err := <-ended:
			if c := Answering(ctx, b.Home); c != nil { // another command started one first
				return c, nil
			}
			return nil, b.failure(err, path, begin)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// failure returns the last error of a program that ended, with its exit code. Its part of the log starts at begin.
func (b Background) failure(err error, path string, begin int64) error {
	e := &Error{Code: ExitFailed, Err: fmt.Errorf("the %s ended", b.Name), Hint: "its log is " + path}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		e.Code = ExitCode(exit.ExitCode())
	}
	text, err := ReadFile(path, 2*maxLog)
	if err != nil || int64(len(text)) < begin {
		return e
	}
	for line := range bytes.Lines(text[begin:]) {
		text := strings.TrimSpace(string(line))
		if said, ok := strings.CutPrefix(text, "starling: "); ok {
			e.Err = errors.New(said)
		}
		if hint, ok := strings.CutPrefix(text, "hint: "); ok {
			e.Hint = hint
		}
	}
	return e
}

// StopIn ends the peer or light client that answers in a home directory, and waits until it no longer answers. It
// reports false if none answers.
func StopIn(ctx context.Context, home string) (bool, error) {
	c := Answering(ctx, home)
	if c == nil {
		return false, nil
	}
	p, err := os.FindProcess(c.PID())
	if err == nil {
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return false, fmt.Errorf("stopping process %d: %w", c.PID(), err)
	}
	for Answering(ctx, home) != nil {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true, nil
}
