package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// outputPatience is how long output is still read after an attached program's end, when something it started holds it open.
const outputPatience = 500 * time.Millisecond

// Dial has the guard connect and hands its socket over.
func (r *Runtime) Dial(ctx context.Context, h runtime.Handle, port uint16) (net.Conn, error) {
	e, err := r.find(h)
	if err != nil {
		return nil, err
	}
	answers, _, end, err := e.begin(guard.Request{Op: guard.OpDial, Port: port})
	if err != nil {
		return nil, err
	}
	defer end()
	a, err := e.next(ctx, answers)
	if err != nil {
		return nil, fmt.Errorf("dialling port %d: %w", port, err)
	}
	defer guard.CloseFiles(a.files)
	if len(a.files) != 1 {
		return nil, fmt.Errorf("dialling port %d: the guard gave %d connections", port, len(a.files))
	}
	c, err := net.FileConn(a.files[0])
	if err != nil {
		return nil, fmt.Errorf("dialling port %d: %w", port, err)
	}
	return c, nil
}

// Attach has the guard start the program, so that it has the execution's limits, and its environment with the secrets.
func (r *Runtime) Attach(ctx context.Context, h runtime.Handle, p runtime.Process) (int, error) {
	e, err := r.find(h)
	if err != nil {
		return 0, err
	}
	return r.attach(ctx, e, p, false)
}

func (r *Runtime) attach(ctx context.Context, e *execution, p runtime.Process, computes bool) (int, error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return 0, errors.New("attaching: names no program")
	}
	std, err := newStdio(p)
	if err != nil {
		return 0, fmt.Errorf("attaching: %w", err)
	}
	defer std.close()
	command := attachCommand(p)
	command.Gauge = computes
	memory, err := guard.MemoryFile(command)
	if err != nil {
		return 0, fmt.Errorf("attaching: %w", err)
	}
	answers, id, end, err := e.begin(guard.Request{Op: guard.OpAttach}, append([]*os.File{memory}, std.theirs...)...)
	_ = memory.Close()
	guard.CloseFiles(std.theirs)
	if err != nil {
		return 0, err
	}
	defer end()
	started, err := e.next(ctx, answers)
	if err != nil {
		e.send(guard.Request{Op: guard.OpCancel, ID: id})
		return 0, fmt.Errorf("attaching %q: %w", p.Args[0], err)
	}
	if err := std.begin(p, started.files); err != nil {
		e.send(guard.Request{Op: guard.OpCancel, ID: id})
		return 0, fmt.Errorf("attaching %q: %w", p.Args[0], err)
	}
	ended, err := e.next(ctx, answers)
	if err != nil {
		e.send(guard.Request{Op: guard.OpCancel, ID: id})
		return 0, fmt.Errorf("attached %q: %w", p.Args[0], err)
	}
	std.finish()
	return ended.Code, nil
}

// attachCommand is what the guard is told; it puts the environment on top of the execution's own.
func attachCommand(p runtime.Process) guard.Command {
	c := guard.Command{Argv: p.Args, Dir: p.WorkDir, TTY: p.TTY}
	for k, v := range p.Env {
		c.Env = append(c.Env, k+"="+v)
	}
	slices.Sort(c.Env)
	if p.TTY {
		select {
		case s := <-p.Size:
			c.Rows, c.Cols = s.Rows, s.Cols
		default:
		}
	}
	return c
}

// stdio carries an attached program's input and output.
type stdio struct {
	theirs   []*os.File // for the guard
	ours     []*os.File // our ends, in the same order; of a terminal the one
	done     chan struct{}
	outputs  sync.WaitGroup
	finished chan struct{} // closed when no output will come any more
}

func newStdio(p runtime.Process) (*stdio, error) {
	s := &stdio{done: make(chan struct{}), finished: make(chan struct{})}
	if p.TTY {
		return s, nil
	}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			s.close()
			return nil, err
		}
		if i > 0 {
			r, w = w, r
		}
		s.theirs, s.ours = append(s.theirs, r), append(s.ours, w)
	}
	return s, nil
}

// begin copies between the program and p.
func (s *stdio) begin(p runtime.Process, files []*os.File) error {
	in, out := p.Stdin, []io.Writer{p.Stdout, p.Stderr}
	var sources []*os.File
	if p.TTY {
		terminal, err := pollable(files)
		if err != nil {
			return err
		}
		s.ours = append(s.ours, terminal)
		sources, out = s.ours, out[:1]
		go s.resize(terminal, p.Size)
	} else {
		guard.CloseFiles(files)
		sources = s.ours[1:]
	}
	for i, from := range sources {
		to := out[i]
		if to == nil {
			to = io.Discard
		}
		s.outputs.Go(func() { _, _ = io.Copy(to, from) }) // a terminal ends with EIO
	}
	go func() {
		s.outputs.Wait()
		close(s.finished)
	}()
	go func() { // not waited for: nobody can interrupt a reader of the caller's
		if in != nil {
			_, _ = io.Copy(s.ours[0], in)
		}
		if !p.TTY {
			_ = s.ours[0].Close()
		}
	}()
	return nil
}

// pollable makes a received terminal one whose reads end when it is closed.
func pollable(files []*os.File) (*os.File, error) {
	defer guard.CloseFiles(files)
	if len(files) != 1 {
		return nil, fmt.Errorf("the guard gave %d terminals", len(files))
	}
	fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("opening terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

func (s *stdio) resize(terminal *os.File, sizes <-chan runtime.Size) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			raw, err := terminal.SyscallConn()
			if err != nil {
				return
			}
			_ = raw.Control(func(fd uintptr) {
				_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
			})
		case <-s.done:
			return
		}
	}
}

// finish waits for the rest of the output.
func (s *stdio) finish() {
	select {
	case <-s.finished:
	case <-time.After(outputPatience):
	}
}

func (s *stdio) close() {
	close(s.done)
	guard.CloseFiles(s.theirs)
	guard.CloseFiles(s.ours)
}
