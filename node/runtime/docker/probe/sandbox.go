//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
		syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGPROF, syscall.SIGXCPU,
		syscall.SIGXFSZ} {
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
