package pty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Terminal is a window with a program in it.
type Terminal struct {
	keys    *os.File // the side of screen and keyboard
	tty     *os.File // the program's side, kept open to read its mode
	initial unix.Termios
	cmd     *exec.Cmd

	mu     sync.Mutex
	shown  bytes.Buffer
	more   chan struct{} // closed and replaced after new output
	exited chan struct{} // closed when the program has ended
}

// Start runs the command with a new terminal as its standard input, output and error, which controls its session. The
// caller must Close it.
func Start(cmd *exec.Cmd, rows, cols uint16) (*Terminal, error) {
	t := &Terminal{cmd: cmd, more: make(chan struct{}), exited: make(chan struct{})}
	if err := t.open(rows, cols); err != nil {
		return nil, fmt.Errorf("opening a terminal: %w", errors.Join(err, t.closeFiles()))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.tty, t.tty, t.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, t.closeFiles())
	}
	go t.show()
	go func() {
		_ = cmd.Wait()
		close(t.exited)
	}()
	return t, nil
}

func (t *Terminal) open(rows, cols uint16) error {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	t.keys = keys
	var n int
	if err := t.control(keys, func(fd int) (err error) {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err == nil {
			err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		}
		return err
	}); err != nil {
		return err
	}
	if t.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	if err := t.Resize(rows, cols); err != nil {
		return err
	}
	t.initial, err = t.mode()
	return err
}

// control leaves the file as it is: Fd would make it block.
func (t *Terminal) control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var said error
	if err := c.Control(func(fd uintptr) { said = do(int(fd)) }); err != nil {
		return err
	}
	return said
}

func (t *Terminal) show() {
	buf := make([]byte, 4<<10)
	for {
		n, err := t.keys.Read(buf)
		t.mu.Lock()
		t.shown.Write(buf[:n])
		close(t.more)
		t.more = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Type presses keys; Ctrl-C is "\x03".
func (t *Terminal) Type(keys string) error {
	_, err := t.keys.WriteString(keys)
	return err
}

// Resize changes the window's size. The system notifies the program.
func (t *Terminal) Resize(rows, cols uint16) error {
	return t.control(t.keys, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// Shown is all output so far.
func (t *Terminal) Shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown.String()
}

// WaitFor returns when the output contains a text; it returns an error at the end of ctx.
func (t *Terminal) WaitFor(ctx context.Context, text string) error {
	for {
		t.mu.Lock()
		seen, more := t.shown.String(), t.more
		t.mu.Unlock()
		if strings.Contains(seen, text) {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("missing output: got %q, want %q: %w", seen, text, ctx.Err())
		}
	}
}

func (t *Terminal) mode() (m unix.Termios, err error) {
	err = t.control(t.tty, func(fd int) error {
		p, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			m = *p
		}
		return err
	})
	return m, err
}

// Raw reports whether keys reach the program one by one, unchanged and without echo.
func (t *Terminal) Raw() (bool, error) {
	m, err := t.mode()
	return m.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0, err
}

// AsBefore reports whether the terminal is in its initial mode.
func (t *Terminal) AsBefore() (bool, error) {
	m, err := t.mode()
	return m == t.initial, err
}

// Wait returns the program's exit code when it has ended; -1 if a signal ended it.
func (t *Terminal) Wait(ctx context.Context) (int, error) {
	select {
	case <-t.exited:
		return t.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the program still runs: %w; output: %q", ctx.Err(), t.Shown())
	}
}

// Signal sends the program a signal.
func (t *Terminal) Signal(sig os.Signal) error { return t.cmd.Process.Signal(sig) }

// Close ends the program, if it still runs, and the terminal.
func (t *Terminal) Close() error {
	_ = t.cmd.Process.Kill()
	<-t.exited
	return t.closeFiles()
}

func (t *Terminal) closeFiles() error {
	var errs []error
	for _, f := range []*os.File{t.tty, t.keys} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
