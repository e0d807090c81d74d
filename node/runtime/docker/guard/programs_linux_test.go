package guard

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

// programMain is a program in a box.
func programMain(name string, args []string) {
	programs := map[string]func(args []string){
		"sleep":      func([]string) { forever() },
		"exit":       exit,
		"die":        die,
		"print":      printAll,
		"files":      printFiles,
		"self":       func([]string) { printSelf() },
		"write":      write,
		"term":       term,
		"orphans":    orphans,
		"serve":      serve,
		"deaf":       deaf,
		"terminal":   terminal,
		"holder":     holder,
		"steal":      func([]string) { steal() },
		"signals":    signalGuard,
		"leaderless": leaderless,
		"hop":        hop,
		"resume":     resume,
		"stopper":    stopper,
		"stop":       stopSelf,
	}
	program := programs[name]
	if program == nil {
		fmt.Println("no program", name)
		os.Exit(2)
	}
	program(args)
	os.Exit(0)
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// exit ends with a code.
func exit(args []string) {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}

// die ends by a signal without a handler.
func die(args []string) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		panic(err)
	}
	var action struct{ handler, flags, restorer, mask uint64 }
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	for {
		_ = unix.Kill(os.Getpid(), syscall.Signal(n))
	}
}

// printAll prints its arguments to both outputs.
func printAll(args []string) {
	fmt.Println(args)
	fmt.Fprintln(os.Stderr, args)
}

// printFiles prints its open files, its environment and its directory. With arguments, it stays.
func printFiles(args []string) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		if target, bad := os.Readlink("/proc/self/fd/" + name); bad == nil && !strings.HasPrefix(target, "anon_inode") && !strings.HasPrefix(target, "/proc/") {
			fmt.Println("file", name, strings.Split(target, ":")[0])
		}
	}
	dir, _ := os.Getwd()
	fmt.Println("env", os.Environ(), dir, err)
	var files, size unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	_ = unix.Getrlimit(unix.RLIMIT_FSIZE, &size)
	adj, _ := os.ReadFile("/proc/self/oom_score_adj")
	fmt.Println("limits", files.Max <= maxFiles, size.Max, strings.TrimSpace(string(adj)))
	if len(args) > 0 {
		forever()
	}
}

// printSelf prints its user and groups, and the owners and modes of the files that the guard made.
func printSelf() {
	groups, _ := os.Getgroups()
	fmt.Println("user", os.Getuid(), os.Getgid(), groups, os.Getenv("HOME"))
	for _, name := range []string{runtime.SecretsDir, runtime.SecretsDir + "/key", "/tmp", "/vol", "/vol/in", "/vol/link", "/made/deep", "/etc/passwd"} {
		if info, err := os.Lstat(name); err == nil {
			stat := info.Sys().(*syscall.Stat_t)
			fmt.Println("at", name, info.Mode(), stat.Uid, stat.Gid)
		}
	}
	key, err := os.ReadFile(runtime.SecretsDir + "/key")
	fmt.Printf("key %s %v\n", key, err)
}

// write writes bytes to a file until it fails.
func write(args []string) {
	signal.Ignore(unix.SIGXFSZ)
	f, err := os.Create(args[0])
	for b := make([]byte, 512); err == nil; {
		_, err = f.Write(b)
	}
	fmt.Println(err)
}

// term prints a line at SIGTERM and ends with a code: at the first, or at the second if it is late. With pester, it sends
// its guard other signals without end.
func term(args []string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	for range 2 {
		go func() {
			for len(args) > 0 && args[0] == "pester" {
				for s := syscall.Signal(35); s <= 64; s++ {
					_ = unix.Kill(1, s)
				}
			}
		}()
	}
	fmt.Println("ready")
	<-signals
	fmt.Println("asked")
	if len(args) > 0 && args[0] == "late" {
		<-signals
	}
	os.Exit(4)
}

// orphans starts processes in sessions of their own, which keep its output open, and ends.
func orphans([]string) {
	for range 8 {
		if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid != 0 {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid != 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
		}
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
		}
	}
	fmt.Println("orphans")
}

// serve sends each client of a port back its bytes, and then a last line.
func serve(args []string) {
	l, err := net.Listen("tcp4", args[0])
	fmt.Println("serves", err)
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			_, _ = io.Copy(c, c)
			_, _ = c.Write([]byte("end"))
			_ = c.Close()
		}()
	}
}

// deaf accepts no connection of port 8080 and has its queue of them full.
func deaf([]string) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(s, &unix.SockaddrInet4{Port: 8080, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(s, 0)
	}
	for range 4 { // some that fit, and others that wait in vain
		go func() { _, _ = net.Dial("tcp4", "127.0.0.1:8080") }()
	}
	for err == nil {
		if table, _ := os.ReadFile("/proc/net/tcp"); strings.Contains(string(table), ":1F90 02 ") { // SYN_SENT
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("deaf", err)
	forever()
}

// terminal prints its terminal's size, and again at each change, until a line comes.
func terminal([]string) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	show := func() {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		group, bad := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		fmt.Println("size", size.Row, size.Col, err, group == os.Getpid(), bad)
	}
	show()
	go func() {
		for range changes {
			show()
		}
	}()
	line := ""
	_, _ = fmt.Scan(&line)
	fmt.Println("line", line)
	os.Exit(7)
}

// holder leaves a process that has its terminal open and ignores its end.
func holder([]string) {
	signal.Ignore(unix.SIGHUP)
	if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid != 0 {
		fmt.Println("holds")
		os.Exit(0)
	}
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
	}
}

// steal tries to read and change its guard.
func steal() {
	for _, name := range []string{"environ", "mem", "maps", "exe", "fd/3", "fd/4", "fd/5"} {
		if f, err := os.Open("/proc/1/" + name); err == nil {
			_ = f.Close()
			fmt.Println("opened", name)
		}
	}
	if err := unix.PtraceAttach(1); err == nil {
		fmt.Println("traced it")
	}
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		for n := range 16 {
			if _, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				fmt.Println("took descriptor", n)
			}
		}
	}
	for _, name := range []string{Path, runtime.ControlDir + "/new", runtime.ControlDir + "/" + SocketFile} {
		if f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			_ = f.Close()
			fmt.Println("wrote", name)
		}
	}
	fmt.Println("done")
}

// stopSelf stops itself.
func stopSelf([]string) {
	fmt.Println("runs")
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	fmt.Println("again")
	forever()
}

// siginfo is the beginning of siginfo_t.
type siginfo struct {
	signo, errno, code int32
	_                  [116]byte
}

// signalGuard sends the guard every signal but SIGTERM, as kill(2) does and as sigqueue(3) does.
func signalGuard([]string) {
	for s := syscall.Signal(1); s <= 64; s++ {
		if s == unix.SIGTERM {
			continue
		}
		_ = syscall.Kill(1, s)
		info := siginfo{signo: int32(s), code: -1} // SI_QUEUE
		_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(s), uintptr(unsafe.Pointer(&info)))
		if errno != 0 {
			fmt.Println("signal", int(s), errno)
		}
	}
	fmt.Println("done", strings.Repeat(".", 3))
	forever()
}

func init() {
	if len(os.Args) > 2 && os.Args[1] == programArg {
		goruntime.LockOSThread() // its main function runs in its first thread
	}
}

// leaderless goes on in a thread after the end of its first one.
func leaderless([]string) {
	go spin()
	fmt.Println("runs")
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

const (
	// chains is the number of them that hop leads.
	chains = 40
	// maxHops is the most processes of hop at a time, those included that have ended and are not reaped yet. An
	// engine limits a container's; a box has no limit.
	maxHops = 500
)

// hop leads endless chains of processes: each starts the next and ends.
func hop([]string) {
	limit := unix.Rlimit{Cur: maxHops, Max: maxHops}
	first := true
	for range chains {
		if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid == 0 {
			first = false
			break
		}
	}
	if first {
		fmt.Println("runs")
		forever()
	}
	_, _, _ = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	for {
		pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		if pid != 0 && errno == 0 { // else it is the next, or there are too many at present
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}

// resume has the kernel send it SIGCONT at each packet of a connection, and computes.
func resume([]string) {
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			var f *os.File
			f, err = c.(*net.TCPConn).File()
			for _, set := range [][2]int{{unix.F_SETOWN, os.Getpid()}, {unix.F_SETSIG, int(unix.SIGCONT)}, {unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK}} {
				if err == nil {
					_, err = unix.FcntlInt(f.Fd(), set[0], set[1])
				}
			}
		}
	}
	fmt.Println("runs", err)
	spin()
}

// spin computes without end.
func spin() {
	for n := uint64(0); ; n++ {
		runs = n
	}
}

var runs uint64 // written by spin alone

// stopper stops every other process without end, and thus those that its guard starts.
func stopper([]string) {
	fmt.Println("runs")
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGSTOP), 0)
	}
}
