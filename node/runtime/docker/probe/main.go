//go:build linux

// Command probe is a program that looks for the limits of its container and misbehaves, for the tests of package
// docker.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
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
		"hide":   func() { fill(args[1], true, false) },    // the same with files that have no name any more
		"deny":   func() { deny(args[1]) },                 // the same in a directory that nobody may read
		"starve": func() { starve(args[1]) },               // many empty files, then large ones, until the disk is full
		"hoard":  hoard,                                    // take and keep every inotify instance of its user
		"fsync":  func() { fsync(args[1]) },                // write little and sync without end; print the rate
		"owned":  func() { owned(args[1], args[2]) },       // read a file of one directory, write one into another
		"reach":  func() { reach(os.Args[2:]) },            // which addresses can be reached; +ADDRESS is to be
		"down":   func() { bulk(args[1], args[2], false) }, // read so many MiB from an address
		"up":     func() { bulk(args[1], args[2], true) },  // send so many MiB to an address that reads them
		"lookup": func() { lookup(args[1]) },               // ask for a name
		"serve":  func() { serve(args[1], args[2]) },       // print a line to every client
		"answer": func() { answer(args[1], args[2]) },      // send the first client so many bytes and end
		"term":   term,                                     // print and exit with 4 when asked to end
		"crash":  crash,                                    // as a program without Go's own handlers does
		"stead":  stead,                                    // pose as the guard to every client
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

func fill(dir string, hidden, careful bool) {
	signal.Ignore(syscall.SIGXFSZ)
	block := make([]byte, 1<<20)
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if hidden {
			_ = os.Remove(f.Name())
		}
		for range 4 {
			if _, err := f.Write(block); err != nil {
				if fmt.Fprintln(os.Stderr, err); careful {
					os.Exit(1)
				}
			}
		}
		if !hidden {
			_ = f.Close()
		}
	}
}

func deny(dir string) {
	sub := filepath.Join(dir, "denied")
	f, err := os.MkdirTemp(dir, "x")
	if err == nil {
		err = os.Rename(f, sub)
	}
	var file *os.File
	if err == nil {
		file, err = os.Create(filepath.Join(sub, "f"))
	}
	if err == nil {
		err = os.Chmod(sub, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	block := make([]byte, 1<<20)
	for {
		_, _ = file.Write(block)
	}
}

func starve(dir string) {
	files := 0
	for ; files < 60_000; files++ {
		f, err := os.Create(filepath.Join(dir, "empty"+strconv.Itoa(files)))
		if err != nil {
			break
		}
		_ = f.Close()
	}
	for i := range min(files, 200) { // room for those that follow
		_ = os.Remove(filepath.Join(dir, "empty"+strconv.Itoa(i)))
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
			if err != nil {
				return
			}
			defer f.Close()
			for block := make([]byte, 64<<10); err == nil; {
				_, err = f.Write(block)
			}
		})
	}
	wg.Wait()
	fmt.Println(files)
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

func fsync(dir string) {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		n, began := 0, time.Now()
		for ; time.Since(began) < time.Second; n++ {
			if _, err = f.WriteAt([]byte{byte(n)}, int64(n%100)<<12); err == nil {
				err = f.Sync()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		fmt.Println(n)
	}
}

func owned(in, out string) {
	b, err := os.ReadFile(filepath.Join(in, "f"))
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "f"), b, 0o600)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(out, "d"), 0)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(os.Getuid(), os.Getenv("HOME"), os.Getenv("USER"))
}

func reach(addrs []string) {
	results := make([]string, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() {
			patience := 2 * time.Second
			a, wanted := strings.CutPrefix(a, "+")
			if wanted { // a busy machine may take longer, and dials of unreachable addresses end only then
				patience = 5 * time.Minute
			}
			c, err := net.DialTimeout("tcp", a, patience)
			results[i] = a + " no"
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				line, _ := bufio.NewReader(c).ReadString('\n')
				results[i] = a + " yes " + strings.TrimSpace(line)
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	fmt.Println(strings.Join(results, "\n"))
}

// bulk moves so many MiB to or from an address and prints how many milliseconds that took.
func bulk(addr, mib string, up bool) {
	n, err := strconv.ParseInt(mib, 10, 64)
	var c net.Conn
	if err == nil {
		c, err = net.Dial("tcp", addr)
	}
	began := time.Now()
	block := make([]byte, 1<<20)
	for range n {
		switch {
		case err != nil:
		case up:
			_, err = c.Write(block)
		default:
			_, err = io.ReadFull(c, block)
		}
	}
	if err == nil && up {
		if err = c.(*net.TCPConn).CloseWrite(); err == nil {
			_, err = io.Copy(io.Discard, c)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(time.Since(began).Milliseconds())
}

func lookup(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	fmt.Println(addrs, err)
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

// stead connects to the peer's socket again and again, ten times as often as its guard, and sends a guard's messages.
func stead() {
	fmt.Println("trying")
	b := make([]byte, 64<<10)
	for ; ; time.Sleep(10 * time.Millisecond) {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "/run/starling/guard.sock"})
		if err != nil {
			continue
		}
		token, since := `{"id":0,"token":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"id":0,"started":"2020-01-02T03:04:05Z"}`
		for _, said := range []string{token, since} {
			if _, err := c.Write([]byte(said)); err != nil {
				break
			}
			if n, err := c.Read(b); err != nil || n == 0 {
				break
			}
		}
		_ = c.Close()
	}
}

func attackGuard() {
	say := func(what string, err error) {
		if err == nil {
			fmt.Println("could", what)
		}
	}
	for _, f := range []string{"environ", "mem", "maps", "exe"} {
		_, err := os.ReadFile("/proc/1/" + f)
		say("read "+f, err)
	}
	for fd := range 32 {
		f, err := os.Open(fmt.Sprintf("/proc/1/fd/%d", fd))
		if err == nil {
			_ = f.Close()
		}
		say("open one of its files", err)
	}
	say("trace it", unix.PtraceAttach(1))
	fd, err := unix.PidfdOpen(1, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(fd, 3, 0)
	}
	say("take its descriptor", err)
	for _, s := range []syscall.Signal{
		syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGHUP, syscall.SIGABRT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE,
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGPROF, syscall.SIGXCPU, syscall.SIGXFSZ} {
		_ = syscall.Kill(1, s)
	}
	at := &net.UnixAddr{Net: "unixpacket", Name: "/run/starling/guard.sock"}
	if c, err := net.DialUnix("unixpacket", nil, at); err == nil {
		_ = c.Close()
		say("reach its socket", nil)
	}
	for _, name := range []string{"/run/starling/guard", "/run/starling/new", "/run/starling/stop"} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			_ = f.Close()
		}
		say("write "+name, err)
	}
	cmd := exec.Command("/proc/self/exe", "pwd") // a thread of many cannot enter one itself
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	say("make a user namespace", cmd.Run())
	say("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	fmt.Println("done")
}

// attackNet shows the network that it finds, then tries to leave its part of it.
func attackNet() {
	links, _ := net.Interfaces()
	for _, l := range links {
		addrs, _ := l.Addrs()
		if l.Flags&net.FlagUp != 0 {
			fmt.Println(l.Name, l.MTU, addrs)
		}
	}
	name, _ := os.Hostname()
	routes, _ := os.ReadFile("/proc/net/route")
	fmt.Printf("%s, %d routes\n", name, strings.Count(string(routes), "\n")-1)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") && !strings.HasSuffix(line, "\t0000000000000000\n") {
			fmt.Print("has ", line)
		}
	}
	say := func(what string, err error) {
		if err == nil {
			fmt.Println("could", what)
		}
	}
	_, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	say("open the TUN device", err)
	say("make a device node", unix.Mknod("/tmp/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))))
	for _, kind := range []struct{ family, typ, proto int }{{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {unix.AF_PACKET, unix.SOCK_RAW, 0x0300}, {unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300}} {
		_, err := unix.Socket(kind.family, kind.typ, kind.proto)
		say(fmt.Sprintf("open a raw socket %v", kind), err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		fmt.Println(err)
	}
	for what, op := range map[string]uint{"the address": unix.SIOCSIFADDR, "the MTU": unix.SIOCSIFMTU, "the flags": unix.SIOCSIFFLAGS, "the name": unix.SIOCSIFNAME} {
		ifr, _ := unix.NewIfreq("ovl0")
		_ = ifr.SetInet4Addr([]byte{10, 77, 0, 99})
		say("change "+what, unix.IoctlIfreq(s, op, ifr))
	}
	var route [120]byte // struct rtentry: a route to everywhere
	route[8], route[40] = unix.AF_INET, unix.AF_INET
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route)))
	if errno != unix.EPERM {
		fmt.Println("a route:", errno)
	}
	_ = unix.SetsockoptInt(s, unix.SOL_IP, unix.IP_FREEBIND, 1)
	if err = unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{10, 77, 0, 99}}); err == nil {
		err = unix.Sendto(s, []byte("spoofed"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 77, 0, 3}})
	}
	say("send from another address", err)
	say("be transparent", unix.SetsockoptInt(s, unix.SOL_IP, unix.IP_TRANSPARENT, 1))
	for _, name := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/cluster/new", "/etc/cluster/hostfile", "/run/starling/rsh", "/proc/sys/net/ipv4/ip_forward"} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			_ = f.Close()
		}
		say("write "+name, err)
	}
	files, _ := filepath.Glob("/run/starling/*")
	for _, f := range files {
		if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: f}); err == nil {
			_ = c.Close()
			say("reach "+f, nil)
		}
	}
	fmt.Println(files)
	for _, pid := range []string{"2", "3", "4", "5", "6", "7", "8", "9"} {
		b, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && strings.Contains(string(b), "\x00net") {
			say("see the sidecar", nil)
		}
	}
	cmd := exec.Command("/proc/self/exe", "pwd")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	say("make a network", cmd.Run())
	p, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP) // as ping does without a capability
	if err == nil {
		err = unix.Sendto(p, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0, &unix.SockaddrInet4{Addr: [4]byte{10, 77, 0, 2}})
	}
	fmt.Println("ping:", err)
}

// nodes serves at every address and dials another until it answers.
func nodes(line, other string) {
	go greet(listen("0.0.0.0:7000"), line) // its addresses are said before the other is asked
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
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Println("read", strings.TrimSpace(line))
}
