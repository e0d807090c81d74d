package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

// Tests of the whole guard run it as the first process of a box: its own process, mount, network and IPC namespaces with a root
// directory in memory. The test plays the peer; the program in the box, the tenant's, is this binary too.

// boxEnv is the path of a box's layout, for the process that becomes its guard.
const boxEnv = "STARLING_GUARD_BOX"

// programArg is the first argument of this binary as a program in a box.
const programArg = "program"

func TestMain(m *testing.M) {
	Main()
	if path := os.Getenv(boxEnv); path != "" {
		boxMain(path)
	}
	if len(os.Args) > 2 && os.Args[1] == programArg {
		programMain(os.Args[2], os.Args[3:])
	}
	os.Exit(m.Run())
}

// layout is a box.
type layout struct {
	Root    string            // directory where it is made
	Control string            // on this machine
	UID     int               // of the guard
	Net     bool              // its guard holds a network
	Files   map[string]string // of the image, by path; a name that ends in / is a directory, "pipe" a named pipe
}

// boxMain makes a box and becomes its guard.
func boxMain(path string) {
	goruntime.LockOSThread()
	var l layout
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err == nil {
		err = l.enter()
	}
	if err == nil {
		args := []string{Path, Subcommand}
		if l.Net {
			args = append(args, NetSubcommand)
		}
		err = syscall.Exec(Path, args, []string{"INHERITED=1"})
	}
	fmt.Fprintln(os.Stderr, "making a box:", err)
	os.Exit(3)
}

func (l layout) enter() error {
	at := func(name string) string { return filepath.Join(l.Root, name) }
	self, err := os.Executable()
	err = errors.Join(err, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", l.Root, "tmpfs", 0, "mode=755"))
	for _, dir := range []string{"proc", "dev/pts", "dev/net", "run", "etc"} {
		err = errors.Join(err, os.MkdirAll(at(dir), 0o755))
	}
	err = errors.Join(err, os.Chmod(at("run"), 0o777), unix.Mount("proc", at("proc"), "proc", 0, ""), os.Mkdir(at("run/starling"), 0o755),
		unix.Mount("devpts", at("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620"), os.Symlink("pts/ptmx", at("dev/ptmx")))
	binds := [][2]string{{l.Control, "run/starling"}, {self, Path}, {"/dev/null", "dev/null"}}
	if l.Net {
		binds = append(binds, [2]string{tunPath, tunPath})
	}
	for _, b := range binds {
		if strings.HasPrefix(b[0], "/dev/") {
			err = errors.Join(err, os.WriteFile(at(b[1]), nil, 0o600))
		}
		err = errors.Join(err, unix.Mount(b[0], at(b[1]), "", unix.MS_BIND, ""))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Files)) {
		switch content := l.Files[name]; {
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(at(name), 0o755))
		case content == "pipe":
			err = errors.Join(err, unix.Mkfifo(at(name), 0o644))
		default:
			err = errors.Join(err, os.WriteFile(at(name), []byte(content), 0o755))
		}
	}
	// The environment of a test may have files open.
	err = errors.Join(err, loopbackUp(), unix.Chroot(l.Root), os.Chdir("/"), unix.CloseRange(3, 1<<16, unix.CLOSE_RANGE_CLOEXEC))
	if l.UID > 0 {
		err = errors.Join(err, syscall.Setgroups(nil), syscall.Setgid(l.UID), syscall.Setuid(l.UID))
	}
	// A box ends with its test.
	return errors.Join(err, unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

func loopbackUp() error {
	return withSocket(func(s int) error {
		ifr, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
	})
}

// box is a guard and the peer's end of its connection.
type box struct {
	t        *testing.T
	dir      string
	cmd      *exec.Cmd
	exited   chan struct{}
	space    string // its process namespace
	listener *net.UnixListener
	order    Order
	lastID   uint32

	mu      sync.Mutex
	conn    *Conn
	answers []Answer
	hungUp  bool // the guard closed the connection
}

// newBox makes a box and waits for the guard's connection.
func newBox(t *testing.T, l layout) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to make namespaces")
	}
	b := &box{t: t, dir: t.TempDir(), exited: make(chan struct{})}
	l.Root, l.Control = filepath.Join(b.dir, "root"), filepath.Join(b.dir, "control")
	must(t, errors.Join(os.Mkdir(l.Root, 0o755), os.Mkdir(l.Control, 0o755), os.WriteFile(filepath.Join(l.Control, "guard"), nil, 0o755)))
	b.listen()
	text, err := json.Marshal(l)
	must(t, errors.Join(err, os.WriteFile(filepath.Join(b.dir, "layout"), text, 0o600)))
	stderr, err := os.Create(filepath.Join(b.dir, "guard.log"))
	must(t, err)
	defer stderr.Close()
	b.cmd = exec.Command("/proc/self/exe")
	b.cmd.Env, b.cmd.Stderr = []string{boxEnv + "=" + filepath.Join(b.dir, "layout")}, stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC}
	must(t, b.cmd.Start())
	go func() {
		_ = b.cmd.Wait()
		close(b.exited)
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-b.exited
		if text, _ := os.ReadFile(stderr.Name()); t.Failed() && len(text) > 0 {
			t.Logf("the guard printed:\n%.4000s", text)
		}
	})
	b.accept()
	b.space, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.cmd.Process.Pid))
	must(t, err)
	return b
}

func (b *box) listen() {
	b.t.Helper()
	path := filepath.Join(b.dir, "control", SocketFile)
	_ = os.Remove(path)
	var err error
	b.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	must(b.t, err)
	must(b.t, os.Chmod(path, 0o666))
	b.t.Cleanup(func() { _ = b.listener.Close() })
}

// accept takes the guard's next connection. If the guard ends before, the test fails.
func (b *box) accept() {
	b.t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-b.exited:
			_ = b.listener.SetDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	c, err := b.listener.AcceptUnix()
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(b.dir, "guard.log"))
		b.t.Fatalf("the guard does not connect: %v\n%s", err, text)
	}
	b.mu.Lock()
	b.conn, b.answers, b.hungUp = NewConn(c), nil, false
	b.mu.Unlock()
	b.t.Cleanup(func() { _ = c.Close() })
}

// run orders a program of this binary, and returns the guard's first answer.
func (b *box) run(edit func(o *Order), program ...string) Answer {
	b.t.Helper()
	b.order = Order{Command: command(program...), LogBytes: 1 << 20, Grace: time.Hour, Token: "its own"}
	if edit != nil {
		edit(&b.order)
	}
	memory, err := MemoryFile(b.order)
	must(b.t, err)
	files := []*os.File{memory}
	for _, name := range []string{"stdout", "stderr", "report"} {
		f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		must(b.t, err)
		files = append(files, f)
	}
	must(b.t, b.conn.Send(Request{Op: OpRun}, files...))
	CloseFiles(files)
	a := b.receive()
	go b.read(b.conn)
	return a
}

// receive reads one answer.
func (b *box) receive() Answer {
	b.t.Helper()
	text, files, err := b.conn.Receive()
	must(b.t, err)
	CloseFiles(files)
	a, err := DecodeAnswer(text)
	must(b.t, err)
	return a
}

// read collects the guard's answers until its connection ends.
func (b *box) read(conn *Conn) {
	for {
		text, files, err := conn.Receive()
		CloseFiles(files)
		a, bad := DecodeAnswer(text)
		b.mu.Lock()
		switch {
		case err != nil:
			b.hungUp = b.hungUp || b.conn == conn
		case bad != nil:
			b.t.Errorf("answer %q: %v", text, bad)
		default:
			b.answers = append(b.answers, a)
		}
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send sends a request and returns its ID, the next one if it has none.
func (b *box) send(req Request, files ...*os.File) uint32 {
	b.t.Helper()
	if req.ID == 0 {
		b.lastID++
		req.ID = b.lastID
	}
	must(b.t, b.conn.Send(req, files...))
	return req.ID
}

// answer waits for an answer to a request; ended is the second answer of an attached program.
func (b *box) answer(id uint32, ended bool) (found Answer) {
	b.t.Helper()
	wait(b.t, fmt.Sprintf("answer to request %d", id), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, a := range b.answers {
			if found = a; a.ID == id && a.Ended == ended && !a.Ending {
				return true
			}
		}
		if b.hungUp {
			b.t.Fatalf("the guard is gone, and has not answered request %d", id)
		}
		return false
	})
	return found
}

// ask sends a request and returns its answer.
func (b *box) ask(req Request, files ...*os.File) Answer {
	b.t.Helper()
	return b.answer(b.send(req, files...), false)
}

// attach attaches a command without a terminal, with its output in a file of the box. It returns the request.
func (b *box) attach(c Command, output string) (uint32, Answer) {
	b.t.Helper()
	memory, err := MemoryFile(c)
	must(b.t, err)
	in, err := os.Open(os.DevNull)
	must(b.t, err)
	out, err := os.Create(filepath.Join(b.dir, output))
	must(b.t, err)
	defer CloseFiles([]*os.File{memory, in, out})
	id := b.send(Request{Op: OpAttach}, memory, in, out, out)
	return id, b.answer(id, false)
}

// prints waits until a file of the box has a text.
func (b *box) prints(file, text string) (all string) {
	b.t.Helper()
	wait(b.t, fmt.Sprintf("%q in %s", text, file), func() bool {
		over := b.over()
		if all = b.output(file); over && !strings.Contains(all, text) {
			b.t.Fatalf("the guard has ended, and %s is %q, want %q", file, all, text)
		}
		return strings.Contains(all, text)
	})
	return all
}

// over reports whether the guard has ended.
func (b *box) over() bool {
	select {
	case <-b.exited:
		return true
	default:
		return false
	}
}

func (b *box) output(file string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, file))
	must(b.t, err)
	return string(text)
}

// end waits for the guard's end and returns its report.
func (b *box) end() Report {
	b.t.Helper()
	<-b.exited
	r, err := DecodeReport([]byte(b.output("report")))
	if err != nil {
		b.t.Fatalf("report %q of a guard with exit code %d: %v", b.output("report"), b.cmd.ProcessState.ExitCode(), err)
	}
	return r
}

// alive fails the test if the guard does not answer. It ends the program and checks the report.
func (b *box) alive() {
	b.t.Helper()
	if a := b.ask(Request{Op: OpUsage}); a.Error != "" {
		b.t.Fatal(a.Error)
	}
	b.send(Request{Op: OpKill, Reason: runtime.ReasonKilled})
	if r := b.end(); r.Reason != runtime.ReasonKilled || r.Code != runtime.CodeKilled {
		b.t.Errorf("report %+v, want the requested end", r)
	}
}

// command is a command for a program of this binary.
func command(program ...string) Command {
	return Command{Argv: append([]string{Path, programArg}, program...), Dir: "/"}
}

// wait waits for a state.
func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		if t.Context().Err() != nil {
			t.Fatal("gave up waiting for", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// socketPair makes two connected sockets: the guard's as a file, the peer's as a connection.
func socketPair(t *testing.T) (theirs *os.File, ours *net.UnixConn) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	near := os.NewFile(uintptr(p[1]), "socket")
	defer near.Close()
	c, err := net.FileConn(near)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return os.NewFile(uintptr(p[0]), "socket"), c.(*net.UnixConn)
}

// readAll reads until a connection ends.
func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}
