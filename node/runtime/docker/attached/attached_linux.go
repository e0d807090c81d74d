package attached

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
	"github.com/starling-network/starling/node/runtime/docker/link"
)

const (
	// outputPatience is how long output is still read after an attached program's end, when something it started holds
	// it open.
	outputPatience = 500 * time.Millisecond
	// restPatience is the wait for a byte after that, and maxRest bounds the bytes: more than a pipe or a terminal
	// holds of a program that has ended.
	restPatience, maxRest = 20 * time.Millisecond, 2 << 20
)

// Dial has the guard connect one end of a pair of sockets; the other is the connection.
func Dial(ctx context.Context, line *link.Line, port uint16) (net.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("dialling port %d: %w", port, err)
	}
	c, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("dialling port %d: %w", port, err)
	}
	answers, id, end, err := line.Begin(guard.Request{Op: guard.OpDial, Port: port}, theirs)
	_ = theirs.Close()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	defer end()
	hangUp := func() { line.Send(guard.Request{Op: guard.OpCancel, ID: id}) }
	d := &dialled{UnixConn: c.(*net.UnixConn), hangUp: sync.OnceFunc(hangUp)}
	a, err := line.Next(ctx, answers)
	guard.CloseFiles(a.Files)
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("dialling port %d: %w", port, err)
	}
	return d, nil
}

// dialled is a connection to a program through its guard, which would not notice its end while the program sends
// nothing.
type dialled struct {
	*net.UnixConn
	hangUp func()
}

// Close closes the connection.
func (d *dialled) Close() error {
	err := d.UnixConn.Close()
	d.hangUp()
	return err
}

// socketPair makes two connected sockets; ours is nonblocking.
func socketPair() (ours, theirs *os.File, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		_, _ = unix.Close(p[0]), unix.Close(p[1])
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "socket"), os.NewFile(uintptr(p[1]), "socket"), nil
}

// Run starts the program by the guard, with the execution's limits, environment and secrets. It returns the program's
// exit code. If computes is true, the program is a gauge: the guard stops all other processes while it computes.
func Run(ctx context.Context, line *link.Line, p runtime.Process, computes bool) (int, error) {
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
	answers, id, end, err := line.Begin(guard.Request{Op: guard.OpAttach}, append([]*os.File{memory}, std.theirs...)...)
	_ = memory.Close()
	guard.CloseFiles(std.theirs)
	if err != nil {
		return 0, err
	}
	defer end()
	started, err := line.Next(ctx, answers)
	if err != nil {
		line.Send(guard.Request{Op: guard.OpCancel, ID: id})
		return 0, fmt.Errorf("attaching %q: %w", p.Args[0], err)
	}
	guard.CloseFiles(started.Files)
	std.begin(p, func(s runtime.Size) {
		line.Send(guard.Request{Op: guard.OpSize, ID: id, Rows: s.Rows, Cols: s.Cols})
	})
	ended, err := line.Next(ctx, answers)
	if err != nil {
		line.Send(guard.Request{Op: guard.OpCancel, ID: id})
		return 0, fmt.Errorf("attached %q: %w", p.Args[0], err)
	}
	std.finish(ctx)
	return ended.Code, nil
}

// attachCommand is the guard's command; it puts the environment on top of the execution's own.
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
	ours     []*os.File // our ends, in the same order; of a terminal the one, a socket
	done     chan struct{}
	outputs  sync.WaitGroup
	finished chan struct{} // closed when no more output will come
}

func newStdio(p runtime.Process) (*stdio, error) {
	s := &stdio{done: make(chan struct{}), finished: make(chan struct{})}
	if p.TTY {
		ours, theirs, err := socketPair()
		s.ours, s.theirs = []*os.File{ours}, []*os.File{theirs}
		return s, err
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

// begin copies between the program and p; resize is called with the sizes of a terminal.
func (s *stdio) begin(p runtime.Process, resize func(runtime.Size)) {
	in, out, sources := p.Stdin, []io.Writer{p.Stdout, p.Stderr}, s.ours
	if p.TTY {
		out = out[:1]
		go s.resize(p.Size, resize)
	} else {
		sources = s.ours[1:]
	}
	for i, from := range sources {
		to := out[i]
		if to == nil {
			to = io.Discard
		}
		s.outputs.Go(func() { copyOutput(to, from) })
	}
	go func() {
		s.outputs.Wait()
		close(s.finished)
	}()
	go func() { // not waited for: the caller's reader cannot be interrupted
		if in != nil {
			_, _ = io.Copy(s.ours[0], in)
		}
		if !p.TTY {
			_ = s.ours[0].Close()
		}
	}()
}

func (s *stdio) resize(sizes <-chan runtime.Size, to func(runtime.Size)) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			to(size)
		case <-s.done:
			return
		}
	}
}

// copyOutput copies until the end of from, or past its deadline until nothing is left: the caller may take longer than
// that for the bytes before.
func copyOutput(to io.Writer, from *os.File) {
	buf := make([]byte, 32<<10)
	for late, rest := false, maxRest; rest > 0; {
		if late {
			_ = from.SetReadDeadline(time.Now().Add(restPatience))
		}
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !late:
			late = true
		case err != nil:
			return
		case late:
			rest -= n
		}
	}
}

// finish waits until the caller has the rest of the output, or ctx ends.
func (s *stdio) finish(ctx context.Context) {
	for _, f := range s.ours {
		_ = f.SetReadDeadline(time.Now().Add(outputPatience)) // an error is of stdin: it is closed
	}
	select {
	case <-s.finished:
	case <-ctx.Done():
	}
}

func (s *stdio) close() {
	close(s.done)
	guard.CloseFiles(s.theirs)
	guard.CloseFiles(s.ours)
}
