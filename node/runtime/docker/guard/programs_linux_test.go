package guard

import (
	"fmt"
	"net"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programMain is a program in a box.
func programMain(name string, args []string) {
	programs := map[string]func(args []string){
		"sleep":      func([]string) { forever() },
		"signals":    signalGuard,
		"leaderless": leaderless,
		"hop":        hop,
		"resume":     resume,
		"stopper":    stopper,
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
	go func() {
		for {
		}
	}()
	fmt.Println("runs")
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// hop leads endless chains of processes: each starts the next and ends.
func hop([]string) {
	fmt.Println("runs")
	first := true
	for range 40 {
		if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid == 0 {
			first = false
			break
		}
	}
	if first {
		forever()
	}
	for {
		if pid, _, _ := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid != 0 {
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
	for {
	}
}

// stopper stops every other process without end, and thus those that its guard starts.
func stopper([]string) {
	fmt.Println("runs")
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGSTOP), 0)
	}
}
