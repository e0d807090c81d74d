//go:build linux

package natlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that only this process holds: it ends with the process.
type Namespace struct{ fd int }

// NewNamespace makes an empty namespace with its loopback up.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var err error
		n.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return n, n.Run("ip", "link", "set", "lo", "up")
}

// onThread runs f on a separate thread, which ends with it, so that no other goroutine runs on the changed thread.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// Enter moves the calling thread into the namespace. The caller must have locked the thread and never unlock it.
func (n *Namespace) Enter() error {
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	return nil
}

// Do runs f inside. Sockets made by f stay inside; goroutines started by f run outside.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := n.Enter(); err != nil {
			return err
		}
		return f()
	})
}

// Dial connects from inside; addr is an IP address and a port.
func (n *Namespace) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Listen listens inside.
func (n *Namespace) Listen(network, addr string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = net.Listen(network, addr)
		return err
	})
	return l, err
}

// Path names the namespace to programs: nsenter --net=PATH.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// Run runs a command inside and waits for it.
func (n *Namespace) Run(name string, args ...string) error { return n.feed("", name, args...) }

// feed runs a command inside with input.
func (n *Namespace) feed(input, name string, args ...string) error {
	return n.Do(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// forward lets the namespace route packets between its links.
func (n *Namespace) forward() error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
}

// Close releases the namespace; its links end with the last process inside.
func (n *Namespace) Close() error {
	if n.fd < 0 {
		return errors.New("closing a network namespace: closed already")
	}
	fd := n.fd
	n.fd = -1
	return unix.Close(fd)
}
