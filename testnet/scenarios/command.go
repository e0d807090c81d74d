package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// ErrFinal reports that the awaited event can no longer occur.
var ErrFinal = errors.New("the state is final")

// Until polls f until it is done, its error is ErrFinal, or ctx ends. The error contains the last observation of f,
// except one of a call that ctx interrupted.
func Until(ctx context.Context, f func() (done bool, saw string, err error)) (string, error) {
	var before string
	var failed error
	for tries := 0; ; tries++ {
		done, saw, err := f()
		if done && err == nil || errors.Is(err, ErrFinal) {
			return saw, err
		}
		if ctx.Err() != nil && tries > 0 {
			saw, err = before, failed
		}
		before, failed = saw, err
		select {
		case <-ctx.Done():
			return saw, fmt.Errorf("gave up; last: %s: %w", saw, errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Tail is the end of a text, for an error.
func Tail(s string) string {
	const most = 1500
	return s[max(0, len(s)-most):]
}

// Said is a command's output and exit code.
type Said struct {
	Out, Err string
	Code     int
}

func (s Said) String() string {
	return fmt.Sprintf("exit code %d, %q, %q", s.Code, Tail(s.Out), Tail(s.Err))
}

// Command is a program that runs in another place: enter moves the calling thread there; it is optional.
type Command struct {
	*exec.Cmd
	Enter func() error
}

// start starts the program on a moved thread, which ends with the start.
func (c Command) start() error {
	if c.Enter == nil {
		return c.Cmd.Start()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in another namespace
		err := c.Enter()
		if err == nil {
			err = c.Cmd.Start()
		}
		done <- err
	}()
	return <-done
}

// Run runs the program to its end. A nonzero exit code is not an error.
func (c Command) Run() (Said, error) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = 10 * time.Second
	err := c.start()
	if err == nil {
		err = c.Wait()
	}
	s := Said{Out: out.String(), Err: errs.String(), Code: c.ProcessState.ExitCode()}
	if _, ended := errors.AsType[*exec.ExitError](err); ended && s.Code >= 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %v", strings.Join(c.Args, " "), err, s)
	}
	return s, err
}

// Collected is a running command with its output so far, errors included.
type Collected struct {
	cmd    Command
	mu     sync.Mutex
	out    bytes.Buffer
	exited chan struct{}
}

// Follow starts a command that runs until it ends or End is called.
func Follow(cmd Command) (*Collected, error) {
	c := &Collected{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c, c
	if err := cmd.start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// Write collects the command's output.
func (c *Collected) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(b)
}

// Text is the output so far.
func (c *Collected) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// WaitFor waits until the output contains a text times times. It returns an error if the command ends earlier.
func (c *Collected) WaitFor(ctx context.Context, text string, times int) error {
	for {
		ended := false
		select {
		case <-c.exited:
			ended = true
		default:
		}
		if strings.Count(c.Text(), text) >= times {
			return nil
		}
		if ended {
			return fmt.Errorf("%s ended without %q: %s", strings.Join(c.cmd.Args, " "), text, Tail(c.Text()))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q: %w; output: %s", text, ctx.Err(), Tail(c.Text()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Wait waits for the command's end and returns its exit code.
func (c *Collected) Wait(ctx context.Context) (int, error) {
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("%s still runs: %w; output: %s", strings.Join(c.cmd.Args, " "), ctx.Err(), Tail(c.Text()))
	}
}

// End interrupts the command and waits for it.
func (c *Collected) End() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	<-c.exited
}
