package guard

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attached is a program beside the program.
type attached struct {
	id    uint32
	pid   int
	gauge bool
}

// attach starts another program and answers. With a terminal it returns this side's end of it, which the peer has now too.
func (g *guard) attach(id uint32, files []*os.File) (*os.File, error) {
	if len(files) != 4 && len(files) != 1 {
		return nil, fmt.Errorf("%d descriptors", len(files))
	}
	b, err := readMemory(files[0])
	if err != nil {
		return nil, err
	}
	c, err := DecodeCommand(b)
	if err != nil {
		return nil, err
	}
	sys := &syscall.SysProcAttr{Setsid: true}
	stdio := files[1:]
	var ends []*os.File
	var terminal *os.File
	if c.TTY {
		var theirs *os.File
		if terminal, theirs, err = openTerminal(c.Rows, c.Cols); err != nil {
			return nil, err
		}
		defer theirs.Close()
		sys.Setctty = true // of descriptor 0
		stdio, ends = []*os.File{theirs, theirs, theirs}, []*os.File{terminal}
	} else if len(files) != 4 {
		return nil, fmt.Errorf("%d descriptors", len(files))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || len(g.attached) >= MaxAttached {
		CloseFiles(ends)
		return nil, fmt.Errorf("%d programs are attached already, or the program has ended", len(g.attached))
	}
	c.Env = merged(g.order.Command.Env, c.Env)
	if c.Dir == "" {
		c.Dir = g.order.Command.Dir
	}
	pid, err := g.spawn(c, stdio, sys)
	if err != nil {
		CloseFiles(ends)
		return nil, err
	}
	g.attached[pid] = &attached{id, pid, c.Gauge}
	_ = g.conn.Send(Answer{ID: id}, ends...)
	return terminal, nil
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

// cancel kills an attached program and what it started in its session.
func (g *guard) cancel(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.attached {
		if a.id == id {
			_ = unix.Kill(-a.pid, unix.SIGKILL)
		}
	}
}

// cancelAll kills what an earlier peer attached: nobody reads its output any more.
func (g *guard) cancelAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.attached {
		_ = unix.Kill(-a.pid, unix.SIGKILL)
	}
}

// openTerminal makes a terminal of the container; ours is the end that shows it.
func openTerminal(rows, cols uint16) (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening terminal: %w", err)
	}
	ours = os.NewFile(uintptr(fd), "terminal")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil && rows > 0 && cols > 0 {
		err = SetSize(ours, rows, cols)
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

// SetSize changes the size of a terminal.
func SetSize(terminal *os.File, rows, cols uint16) error {
	return unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}
