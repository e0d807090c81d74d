package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/overlay/egress"
	testengine "github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/natlab"
)

// outside is a second namespace with the addresses of the world around an engine's machine: the internet, its local network,
// a cloud's metadata service. Whoever connects to one is told its name.
func outside(t testing.TB, e *testengine.Engine) {
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
	for _, a := range []string{"11.22.33.44", "192.168.1.1", "10.1.2.3", "172.20.0.1", "100.64.0.1", "169.254.169.254", "5.6.7.8"} {
		ip(world, "addr", "add", a+"/32", "dev", "lo")
	}
	greeter(t, world, "0.0.0.0:80", "the world")
	for _, port := range mailPorts {
		greeter(t, world, "0.0.0.0:"+port, "a mail server")
	}
	greeter(t, e.Net, "0.0.0.0:81", "the machine")
	answering(t, world, "0.0.0.0:"+bulkPorts["down"], func(c net.Conn) {
		block := make([]byte, 1<<20)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	answering(t, world, "0.0.0.0:"+bulkPorts["up"], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

// mailPorts are those at which mail servers take mail.
var mailPorts = []string{"25", "465", "587"}

// bulkPorts are those at which the world sends without end, and reads to the end.
var bulkPorts = map[string]string{"down": "90", "up": "91"}

// greeter says its name to whoever connects.
func greeter(t testing.TB, in *natlab.Namespace, addr, name string) {
	answering(t, in, addr, func(c net.Conn) { _, _ = io.WriteString(c, name+"\n") })
}

// answering calls f with what connects to an address in a namespace.
func answering(t testing.TB, in *natlab.Namespace, addr string, f func(net.Conn)) {
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
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
}

// names resolves a name to an address of the internet, and another one to the router of the local network.
type names struct{ *net.Resolver }

func (names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "rebind.example." {
		return []netip.Addr{netip.MustParseAddr("192.168.1.1")}, nil
	}
	return []netip.Addr{netip.MustParseAddr("11.22.33.44")}, nil
}

// lone is a spec of a container that is of no cluster and has a way out, of the program that misbehaves.
func lone(t testing.TB, image string, args ...string) runtime.Spec {
	t.Helper()
	s := node(t, image, 0, args...)
	s.Overlay = &runtime.Overlay{Address: cluster.Address(0), PrefixBits: cluster.Prefix.Bits(), MTU: runtime.MaxMTU, Hostname: "starling", Alone: true, Files: cluster.AloneFiles()}
	return s
}

// wayOut is a container's, as its peer makes it, from the namespace of an engine.
func wayOut(t testing.TB, r *Runtime, e *testengine.Engine, h runtime.Handle) *egress.Stack {
	t.Helper()
	f, err := r.Tun(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	out, err := egress.New(egress.Config{
		Address: cluster.Address(0), Service: cluster.Service, MTU: runtime.MaxMTU, Policy: egress.Policy{Mode: egress.ModeInternet}, Resolve: names{},
		Own: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("5.6.7.8")} },
		Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return e.Net.Dial(ctx, network, to.String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	line, err := overlay.NewAlone(overlay.AloneConfig{Address: cluster.Address(0), Tun: f, Outside: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = line.Close(), out.Close() })
	return out
}

// A container with a way out reaches the internet, and neither this machine, its router's public address nor the networks around it,
// whatever the machine's firewall says.
func TestAttackContainerReachesLAN(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	outside(t, e)
	r := newRuntime(t, e, nil)
	ref := push(t, lab, "plain", nil)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Net.Run("iptables", "-F"); err != nil { // as a reload of a firewall does
		t.Fatal(err)
	}
	closed := []string{"192.168.1.1:80", "10.1.2.3:80", "172.20.0.1:80", "172.17.0.1:81", "100.64.0.1:80", "169.254.169.254:80", "198.51.100.2:81", "10.77.0.3:80"}
	h := start(t, r, lone(t, ref, append([]string{"reach", "+11.22.33.44:80", "5.6.7.8:80"}, closed...)...))
	out := wayOut(t, r, e, h)
	if end := wait(t, r, h); !end.OK() {
		t.Fatalf("%+v", end)
	}
	want := "11.22.33.44:80 yes the world\n5.6.7.8:80 no\n" + strings.Join(closed, " no\n") + " no\n"
	if got := output(t, h, runtime.Stdout); got != want {
		t.Errorf("reached\n%swant\n%s", got, want)
	}
	until(t, "all that it tried was refused", func() bool {
		no := out.Stats().Refused
		return no[egress.ReasonClosed] >= uint64(len(closed)) && no[egress.ReasonHost] >= 1
	})
	for name, want := range map[string]string{"somewhere.example": "[11.22.33.44] <nil>\n", "rebind.example": "[] lookup rebind.example"} {
		h := start(t, r, lone(t, ref, "lookup", name))
		wayOut(t, r, e, h)
		wait(t, r, h)
		if got := output(t, h, runtime.Stdout); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := run(t, r, lone(t, ref, "net")); got != loneSandbox {
		t.Errorf("it finds\n%swant\n%s", got, loneSandbox)
	}
	if got := run(t, r, probe(t, ref, "reach", "11.22.33.44:80", "172.17.0.1:81")); strings.Contains(got, "yes") {
		t.Errorf("without a network it reached %s", got)
	}
}

// A container with a way out sends no mail.
func TestAttackContainerMails(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	outside(t, e)
	r := newRuntime(t, e, nil)
	args, want := []string{"reach", "+11.22.33.44:80"}, "11.22.33.44:80 yes the world\n"
	for _, port := range mailPorts {
		args, want = append(args, "11.22.33.44:"+port), want+"11.22.33.44:"+port+" no\n"
	}
	h := start(t, r, lone(t, pulled(t, r, "probe", nil), args...))
	out := wayOut(t, r, e, h)
	if end := wait(t, r, h); !end.OK() {
		t.Fatalf("%+v", end)
	}
	if got := output(t, h, runtime.Stdout); got != want {
		t.Errorf("reached\n%swant\n%s", got, want)
	}
	until(t, "each is counted as mail", func() bool { return out.Stats().Refused[egress.ReasonMail] >= uint64(len(mailPorts)) })
}

// loneSandbox is all that a container of no cluster finds of a network and can do to it.
const loneSandbox = `lo 65536 [127.0.0.1/8]
ovl0 9000 [10.77.0.2/16]
starling, 2 routes
[/run/starling/guard]
ping: <nil>
`

// The peer is killed while a container of no cluster waits for the internet: its successor carries on.
func TestWayOutAfterPeerKilled(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	outside(t, e)
	r := newRuntime(t, e, nil)
	ref := pulled(t, r, "plain", nil)
	cfg := r.cfg
	cfg.Logger = nil
	h := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{lone(t, ref, "reach", "+11.22.33.44:80")}})[0]
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	wayOut(t, r, e, h)
	if end := wait(t, r, h); !end.OK() || output(t, h, runtime.Stdout) != "11.22.33.44:80 yes the world\n" {
		t.Errorf("%+v, %s", end, output(t, h, runtime.Stdout))
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// The engine is killed and comes back: a container keeps its network, which its peer holds.
func TestWayOutAfterEngineKilled(t *testing.T) {
	t.Parallel()
	e := ownEngine(t, "--live-restore")
	outside(t, e)
	r := newRuntime(t, e, nil)
	h := start(t, r, lone(t, pulled(t, r, "plain", nil), "reach", "+11.22.33.44:80"))
	e.Signal(syscall.SIGKILL)
	wayOut(t, r, e, h)
	if end := wait(t, r, h); !end.OK() || output(t, h, runtime.Stdout) != "11.22.33.44:80 yes the world\n" {
		t.Errorf("%+v, %s", end, output(t, h, runtime.Stdout))
	}
	restart(t, e)
}

// An engine that maps users lets its root open the device only where everybody may.
func userNamespaceOverlay(t *testing.T, r *Runtime, ref string) {
	t.Helper()
	s := node(t, ref, 0, "net")
	info, err := os.Stat(sidecar.TunDevice)
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
	if r.engine.Shift == nil {
		t.Fatal("users are not mapped")
	}
	s := spec(t, ref, "write", "/out/new")
	out := t.TempDir()
	s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
	s.Secrets = map[string][]byte{"key": []byte("value")}
	run(t, r, s)
	if b, err := exec.Command("stat", "-c", "%u", filepath.Join(out, "new")).Output(); err != nil || string(b) != fmt.Sprintln(r.engine.Shift.UID) {
		t.Errorf("written by user %s, %v", b, err)
	}
	s = spec(t, ref, "write", "/out/new")
	out = t.TempDir()
	s.User, s.Mounts = 9, []runtime.Mount{{Host: out, Guest: "/out"}}
	run(t, r, s)
	if b, err := exec.Command("stat", "-c", "%u", filepath.Join(out, "new")).Output(); err != nil || string(b) != fmt.Sprintln(r.engine.Shift.UID+9) {
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
	if uids := run(t, r, spec(t, ref, "show", "/proc/self/uid_map")); !strings.Contains(uids, fmt.Sprint(r.engine.Shift.UID)) {
		t.Errorf("users %s", uids)
	}
}
