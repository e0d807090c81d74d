package docker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	testengine "github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/natlab"
)

// outside is a second namespace with the addresses of the world around an engine's machine: the internet, its local network,
// a cloud's metadata service. Whoever connects to one is told its name.
func outside(t *testing.T, e *testengine.Engine) {
	t.Helper()
	world, err := natlab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close() })
	ip := func(n *natlab.Namespace, args ...string) {
		t.Helper()
		if err := n.Run("ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	ip(e.Net, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", world.Path())
	ip(e.Net, "addr", "add", "198.51.100.2/24", "dev", "up0")
	ip(e.Net, "link", "set", "up0", "up")
	ip(e.Net, "route", "add", "default", "via", "198.51.100.1")
	ip(world, "addr", "add", "198.51.100.1/24", "dev", "down0")
	ip(world, "link", "set", "down0", "up")
	for _, a := range []string{"11.22.33.44", "192.168.1.1", "10.1.2.3", "172.20.0.1", "100.64.0.1", "169.254.169.254", "1.1.1.1"} {
		ip(world, "addr", "add", a+"/32", "dev", "lo")
	}
	greeter(t, world, "0.0.0.0:80", "the world")
	greeter(t, e.Net, "0.0.0.0:81", "the machine")
	resolver(t, world)
}

func greeter(t *testing.T, in *natlab.Namespace, addr, name string) {
	t.Helper()
	l, err := in.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name+"\n")
			_ = c.Close()
		}
	}()
}

// resolver answers every question of a name with 11.22.33.44.
func resolver(t *testing.T, in *natlab.Namespace) {
	t.Helper()
	var conn net.PacketConn
	if err := in.Do(func() (err error) { conn, err = net.ListenPacket("udp", "1.1.1.1:53"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			q := b[:n]
			end := 12
			for end < len(q) && q[end] != 0 {
				end += int(q[end]) + 1
			}
			if end+5 > len(q) {
				continue
			}
			isA := q[end+2] == 1
			r := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end+5]...)
			if isA {
				r[7] = 1
				r = append(r, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 11, 22, 33, 44)
			}
			_, _ = conn.WriteTo(r, from)
		}
	}()
}

func TestInternet(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	outside(t, e)
	r := newRuntime(t, e, nil)
	ref := push(t, lab, "plain", nil)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	internet := func(args ...string) runtime.Spec {
		s := probe(t, ref, args...)
		s.Network = runtime.NetworkInternet
		return s
	}
	other := start(t, r, internet("serve", "0.0.0.0:82", "another container"))
	info, err := r.engine.ContainerInspect(t.Context(), containerName(other.Dir))
	if err != nil {
		t.Fatal(err)
	}
	neighbour, gateway := info.NetworkSettings.Networks[r.net.name].IPAddress, info.NetworkSettings.Networks[r.net.name].Gateway
	until(t, "the other container listens", func() bool { return output(t, other, runtime.Stdout) != "" })
	if list := output(t, other, runtime.Stdout); strings.Contains(list, ":") {
		t.Errorf("it has IPv6: %s", list)
	}
	closed := []string{"192.168.1.1:80", "10.1.2.3:80", "172.20.0.1:80", "100.64.0.1:80", "169.254.169.254:80", gateway + ":81", "198.51.100.2:81", "127.0.0.1:81", neighbour + ":82"}
	got := run(t, r, internet(append([]string{"reach", "+11.22.33.44:80"}, closed...)...))
	want := "11.22.33.44:80 yes the world\n" + strings.Join(closed, " no\n") + " no\n"
	if got != want {
		t.Errorf("reached\n%swant\n%s", got, want)
	}
	if got := run(t, r, internet("lookup", "somewhere.example")); got != "[11.22.33.44] <nil>\n" {
		t.Errorf("asking for a name: %s", got)
	}
	if got := run(t, r, probe(t, ref, "reach", "11.22.33.44:80", gateway+":81")); strings.Contains(got, "yes") {
		t.Errorf("without a network it reached %s", got)
	}

	// The rules are looked at again for each container.
	if _, err := r.net.iptables(t.Context(), "-F", "DOCKER-USER"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.net.iptables(t.Context(), "-I", "INPUT", "1", "-j", "ACCEPT"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, r, internet("reach", "192.168.1.1:80", gateway+":81", "+11.22.33.44:80")); got != "192.168.1.1:80 no\n"+gateway+":81 no\n11.22.33.44:80 yes the world\n" {
		t.Errorf("after the rules were lost it reached %s", got)
	}
}

// A runtime that cannot make the rules gives no network.
func TestInternetRefused(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, func(c *Config) { c.NetNS = "/run/netns/none-" + filepath.Base(shared.Dir) })
	s := spec(t, pulled(t, r, "plain", nil), "hello")
	s.Network = runtime.NetworkInternet
	if _, err := r.Start(t.Context(), s); !errors.Is(err, errUnfiltered) {
		t.Errorf("got %v", err)
	}
	if n := containers(t, r); n != 0 {
		t.Errorf("%d containers", n)
	}
}

// An engine that maps users lets its root open the device only where everybody may.
func userNamespaceOverlay(t *testing.T, r *Runtime, ref string) {
	t.Helper()
	s := node(t, ref, 0, "net")
	info, err := os.Stat(tunDevice)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CanOverlay(t.Context()); info.Mode()&0o006 != 0o006 {
		if !errors.Is(err, runtime.ErrNoOverlay) || !strings.Contains(err.Error(), "chmod 0666") {
			t.Errorf("a device that is root's alone: %v", err)
		}
		return
	} else if err != nil {
		t.Fatal(err)
	}
	if got := run(t, r, s); got != sandboxOf0 {
		t.Errorf("with an overlay it finds\n%s", got)
	}
}

// The engine maps the containers' root to another user: mounts are given to that one.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	needEngine(t)
	if _, err := user.Lookup("dockremap"); err != nil { // the engine makes this user
		t.Cleanup(func() { _ = exec.Command("userdel", "dockremap").Run() })
	}
	e := ownEngine(t, "--userns-remap=default")
	r := newRuntime(t, e, nil)
	ref := push(t, lab, "plain", nil)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	if r.engine.shift == nil {
		t.Fatal("users are not mapped")
	}
	s := spec(t, ref, "write", "/out/new")
	out := t.TempDir()
	s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
	s.Secrets = map[string][]byte{"key": []byte("value")}
	run(t, r, s)
	if b, err := exec.Command("stat", "-c", "%u", filepath.Join(out, "new")).Output(); err != nil || string(b) != fmt.Sprintln(r.engine.shift.uid) {
		t.Errorf("written by user %s, %v", b, err)
	}
	s = spec(t, ref, "write", "/out/new")
	out = t.TempDir()
	s.User, s.Mounts = 9, []runtime.Mount{{Host: out, Guest: "/out"}}
	run(t, r, s)
	if b, err := exec.Command("stat", "-c", "%u", filepath.Join(out, "new")).Output(); err != nil || string(b) != fmt.Sprintln(r.engine.shift.uid+9) {
		t.Errorf("written by user %s, %v", b, err)
	}
	h := start(t, r, spec(t, ref, "polite"))
	if err := r.Stop(t.Context(), h, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Code != 3 {
		t.Errorf("%+v", e)
	}
	userNamespaceOverlay(t, r, ref)
	if uids := run(t, r, spec(t, ref, "show", "/proc/self/uid_map")); !strings.Contains(uids, fmt.Sprint(r.engine.shift.uid)) {
		t.Errorf("users %s", uids)
	}
}
