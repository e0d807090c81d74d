//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// bulk transfers a number of MiB to or from an address and prints the duration in milliseconds.
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
	changeNetwork(say)
	writeFiles(say)
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

// changeNetwork tries to get at packets, and to change the address, the routes and the device of the network.
func changeNetwork(say func(what string, err error)) {
	_, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	say("open the TUN device", err)
	say("make a device node", unix.Mknod("/tmp/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))))
	for _, kind := range []struct{ family, typ, proto int }{
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{unix.AF_PACKET, unix.SOCK_RAW, 0x0300}, {unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300},
	} {
		_, err := unix.Socket(kind.family, kind.typ, kind.proto)
		say(fmt.Sprintf("open a raw socket %v", kind), err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		fmt.Println(err)
	}
	for what, op := range map[string]uint{
		"the address": unix.SIOCSIFADDR, "the MTU": unix.SIOCSIFMTU, "the flags": unix.SIOCSIFFLAGS,
		"the name": unix.SIOCSIFNAME,
	} {
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
}

// writeFiles tries to write the files that name hosts, and the kernel's settings of the network.
func writeFiles(say func(what string, err error)) {
	for _, name := range []string{
		"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/cluster/new", "/etc/cluster/hostfile",
		"/run/starling/rsh", "/proc/sys/net/ipv4/ip_forward",
	} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		if err == nil {
			_ = f.Close()
		}
		say("write "+name, err)
	}
}
