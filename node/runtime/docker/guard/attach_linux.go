package guard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attached is a further program in the container.
type attached struct {
	id    uint32
	pid   int
	gauge bool
	// terminal is this side's end of a terminal, or nil.
	terminal *os.File
}

// attach starts another program and answers.
func (g *guard) attach(id uint32, files []*os.File) error {
	if len(files) != 4 && len(files) != 2 {
		return fmt.Errorf("%d descriptors", len(files))
	}
	b, err := readMemory(files[0])
	if err != nil {
		return err
	}
	c, err := DecodeCommand(b)
	if err != nil {
		return err
	}
	if c.TTY != (len(files) == 2) {
		return fmt.Errorf("%d descriptors, terminal: %v", len(files), c.TTY)
	}
	if !c.TTY {
		return g.attachWith(id, c, files[1:], nil)
	}
	near, err := socketOf(files[1:])
	if err != nil {
		return err
	}
	ours, theirs, err := openTerminal(c.Rows, c.Cols)
	if err != nil {
		_ = near.Close()
		return err
	}
	defer theirs.Close()
	if err = g.own(theirs); err == nil {
		err = g.attachWith(id, c, []*os.File{theirs, theirs, theirs}, ours)
	}
	if err != nil {
		_ = near.Close()
		_ = ours.Close()
		return err
	}
	go join(near, ours)
	return nil
}

// join copies between a socket of the peer and a terminal until the programs have closed the terminal or the peer the
// socket. Then it closes both, which hangs up on programs that still have the terminal.
func join(near *net.UnixConn, terminal *os.File) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(near, terminal) // a terminal ends with EIO
		_ = near.Close()
	}()
	_, err := io.Copy(terminal, near)
	if errors.Is(err, unix.EIO) || errors.Is(err, net.ErrClosed) {
		<-done // the programs have closed it; the rest of their output is read
	}
	_ = terminal.Close()
	_ = near.Close()
	<-done
}

// attachWith starts another program on these files.
func (g *guard) attachWith(id uint32, c Command, stdio []*os.File, terminal *os.File) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || len(g.attached) >= MaxAttached {
		return fmt.Errorf("%d programs are attached already, or the program has ended", len(g.attached))
	}
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: terminal != nil} // the terminal is its descriptor 0
	// A gauge has neither the program's environment, which could slow it down, nor its user.
	if !c.Gauge {
		c.Env = merged(g.order.Command.Env, c.Env)
		sys.Credential = g.credential()
	}
	if c.Dir == "" {
		c.Dir = g.order.Command.Dir
	}
	pid, err := spawn(g.order, c, stdio, sys)
	if err != nil {
		return err
	}
	g.attached[pid] = &attached{id, pid, c.Gauge, terminal}
	if g.stillness != nil && !c.Gauge {
		g.stillness.begin(pid)
	}
	_ = g.conn.Send(Answer{ID: id})
	return nil
}

// resize changes the size of an attached program's terminal.
func (g *guard) resize(req Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.attached {
		if a.id == req.ID && a.terminal != nil {
			_ = setSize(a.terminal, req.Rows, req.Cols)
		}
	}
}

// merged is an environment with another on top: no name twice, since programs differ in which they take.
func merged(base, top []string) []string {
	set := map[string]bool{}
	for _, kv := range top {
		name, _, _ := strings.Cut(kv, "=")
		set[name] = true
	}
	all := slices.Clone(top)
	for _, kv := range base {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			all = append(all, kv)
		}
	}
	return all
}

// cancel kills an attached program and the processes of its session, or reads no more of a connection.
func (g *guard) cancel(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.attached {
		if a.id == id {
			_ = unix.Kill(-a.pid, unix.SIGKILL)
		}
	}
	for d, dialled := range g.dialled {
		if dialled == id {
			d.hangUp()
		}
	}
}

// cancelAll ends the programs and connections of an earlier peer.
func (g *guard) cancelAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.attached {
		_ = unix.Kill(-a.pid, unix.SIGKILL)
	}
	for d := range g.dialled {
		d.hangUp()
	}
}

// openTerminal makes a terminal of the container; ours is the end that shows it, and nonblocking.
func openTerminal(rows, cols uint16) (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening terminal: %w", err)
	}
	ours = os.NewFile(uintptr(fd), "terminal")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil && rows > 0 && cols > 0 {
		err = setSize(ours, rows, cols)
	}
	var slave int
	if err == nil {
		slave, err = unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		_ = ours.Close()
		return nil, nil, fmt.Errorf("opening terminal: %w", err)
	}
	return ours, os.NewFile(uintptr(slave), "terminal"), nil
}

// setSize changes the size of a terminal.
func setSize(terminal *os.File, rows, cols uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	return errors.Join(err, failed)
}
