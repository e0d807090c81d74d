//go:build linux

// Command probe is a program that tests the limits of its container and misbehaves, for the tests of package docker.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/runtime/agent"
)

func main() {
	args := append(os.Args[1:], "", "", "")
	commands := map[string]func(){
		"forks":  forks,                                    // fork without end, children too, half in own sessions
		"flood":  flood,                                    // print without end
		"fill":   func() { fill(args[1], false, false) },   // write files into a directory without end
		"write":  func() { fill(args[1], false, true) },    // write files until that fails
		"hide":   func() { fill(args[1], true, false) },    // the same with deleted open files
		"deny":   func() { deny(args[1]) },                 // the same in an unreadable directory
		"starve": func() { starve(args[1]) },               // many empty files, then large ones, until the disk is full
		"hoard":  hoard,                                    // take and keep every inotify instance of its user
		"fsync":  func() { fsync(args[1]) },                // write little and sync without end; print the rate
		"owned":  func() { owned(args[1], args[2]) },       // read a file of one directory, write one into another
		"reach":  func() { reach(os.Args[2:]) },            // which addresses can be reached; +ADDRESS is to be
		"down":   func() { bulk(args[1], args[2], false) }, // read n MiB from an address
		"up":     func() { bulk(args[1], args[2], true) },  // send n MiB to an address that reads them
		"lookup": func() { lookup(args[1]) },               // resolve a name
		"serve":  func() { serve(args[1], args[2]) },       // print a line to every client
		"answer": func() { answer(args[1], args[2]) },      // send n bytes to the first client and end
		"term":   term,                                     // on a stop request, print and exit with 4
		"crash":  crash,                                    // as a program without Go's own handlers does
		"stead":  stead,                                    // pose as the guard to every client
		"asis":   asIs,                                     // print the user and its abilities in an ordinary image
		"root":   func() { root(os.Args[2:]) },             // change files as root of the container
		"escape": escape,                                   // print the ways out of a user namespace
		"guard":  attackGuard,                              // print the reachable parts of the guard
		"net":    attackNet,                                // print the network and the possible changes to it
		"nodes":  func() { nodes(args[1], args[2]) },       // print a line to every client, and another server's line
		"rshd":   rshd,                                     // play the peer for the agents of others
		"tty":    tty,                                      // print the terminal and each new size; end at a line
		"sleep":  func() { time.Sleep(time.Hour) },
		"pwd":    func() { dir, _ := os.Getwd(); fmt.Println(dir) },
	}
	run := commands[args[0]]
	if run == nil {
		fmt.Fprintf(os.Stderr, "unknown command %q\n", args[0])
		os.Exit(2)
	}
	run()
}

// forks makes its children by the system call itself and keeps to one thread. When no more processes may begin, a Go
// program that needs another thread dies, and the bomb must not. Each then tries ten times less often: the kernel frees
// the memory of a refused fork a while later. On a busy machine a hundred thousand of them a second would use up the
// container's memory first.
func forks() {
	goruntime.GOMAXPROCS(1)
	for i := 0; ; i++ {
		child, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		if errno == 0 && child == 0 && i%2 == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		}
		rest := unix.Timespec{Nsec: 1e6}
		if errno != 0 {
			rest.Nsec = 1e7
		}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
	}
}

func flood() {
	line := []byte(strings.Repeat("x", 1023) + "\n")
	w := bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		_, _ = w.Write(line)
	}
}

func hoard() {
	n := 0
	for ; ; n++ {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			fmt.Println(n, err)
			break
		}
	}
	time.Sleep(time.Hour)
}

func term() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println("ready")
	<-signals
	fmt.Println("asked")
	os.Exit(4)
}

func crash() {
	var byDefault [4]uint64 // struct sigaction
	at := uintptr(unsafe.Pointer(&byDefault))
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGSEGV), at, 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	time.Sleep(time.Hour)
}

// nodes serves at every address and dials another until it answers.
func nodes(line, other string) {
	go greet(listen("0.0.0.0:7000"), line) // its addresses are printed before line is read
	for {
		c, err := net.DialTimeout("tcp", other, time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		said, err := bufio.NewReader(c).ReadString('\n')
		_ = c.Close()
		if err == nil {
			fmt.Println("other says", strings.TrimSpace(said))
			time.Sleep(time.Hour)
		}
	}
}

// rshd runs agents' commands itself, and prints their intended hosts.
func rshd() {
	l, err := net.Listen("tcp", agent.Address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		go func() {
			req, err := agent.ReadRequest(c)
			if err != nil {
				fmt.Println(err)
				_ = c.Close()
				return
			}
			_ = live.Serve(context.Background(), c, 0, 0, func(ctx context.Context, s live.Session) (int, error) {
				n, err := io.Copy(s.Stdout, s.Stdin)
				fmt.Fprintf(s.Stderr, "%s: %q after %d bytes\n", req.Host, req.Command(), n)
				return 9, err
			})
		}()
	}
}

func tty() {
	show := func() {
		ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			fmt.Println("no terminal")
			return
		}
		fmt.Printf("%dx%d\n", ws.Row, ws.Col)
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	show()
	go func() {
		for range changes {
			show()
		}
	}()
	in, err := os.Open("/dev/stdin") // by name, as ssh and screen open it
	if err != nil {
		fmt.Println(err)
		return
	}
	line, _ := bufio.NewReader(in).ReadString('\n')
	fmt.Println("read", strings.TrimSpace(line))
}
