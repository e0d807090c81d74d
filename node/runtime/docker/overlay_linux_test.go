package docker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

// node is a spec of a member of a cluster, of the program that misbehaves.
func node(t testing.TB, image string, rank int, args ...string) runtime.Spec {
	t.Helper()
	if _, err := os.Stat(sidecar.TunDevice); err != nil {
		t.Skip("this machine has no " + sidecar.TunDevice)
	}
	s := probe(t, image, args...)
	s.Overlay = &runtime.Overlay{Address: netip.AddrFrom4([4]byte{10, 77, 0, byte(2 + rank)}), PrefixBits: 16, MTU: 1380, Hostname: fmt.Sprintf("node-%d", rank),
		Files: map[string][]byte{"/etc/cluster/hostfile": []byte("node-0\n")}}
	return s
}

func TestOverlaySandbox(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	got := run(t, r, node(t, pulled(t, r, "plain", nil), 0, "net"))
	if got != sandboxOf0 {
		t.Errorf("it finds\n%swant\n%s", got, sandboxOf0)
	}
}

// sandboxOf0 is all that rank 0 finds of a network and can do to it.
const sandboxOf0 = `lo 65536 [127.0.0.1/8]
ovl0 1380 [10.77.0.2/16]
node-0, 2 routes
[/run/starling/guard /run/starling/rsh]
ping: <nil>
`

// What an execution has besides is as without an overlay: devices, limits, probes, pauses, secrets. The sidecar has none of it.
func TestOverlayAbilities(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := node(t, pulled(t, r, "plain", nil), 0, "sleep")
	s.Limits = runtime.Limits{MemoryMiB: 100, MilliCPU: 1500, Pids: 50}
	s.Overlay.First = true
	s.Secrets = map[string][]byte{"key": []byte("value")}
	out := t.TempDir()
	s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
	h := start(t, r, s)
	info, err := r.engine.ContainerInspect(t.Context(), engine.ContainerName(h.Dir))
	if err != nil {
		t.Fatal(err)
	}
	if c := info.HostConfig; c.Privileged || c.Memory != (100+sandbox.GuardMiB+sandbox.GaugeMiB)<<20 || *c.PidsLimit != 50+sandbox.GuardPids || c.CPUQuota != 150_000 || c.CPUShares != sandbox.FirstShares || !c.ReadonlyRootfs || len(c.CapAdd) > 0 || len(c.Devices) > 0 || len(c.Sysctls) > 0 {
		t.Errorf("%+v", c)
	}
	info, err = r.engine.ContainerInspect(t.Context(), engine.SidecarName(h.Dir))
	if err != nil {
		t.Fatal(err)
	}
	if c := info.HostConfig; c.Privileged || c.Memory != sidecar.MiB<<20 || *c.PidsLimit != sidecar.Pids || !c.ReadonlyRootfs || len(c.CapAdd) != 1 || strings.TrimPrefix(c.CapAdd[0], "CAP_") != "NET_ADMIN" || fmt.Sprint(c.CapDrop) != "[ALL]" ||
		c.NetworkMode != "none" || len(c.Devices) != 1 || len(info.Mounts) != 2 || info.Mounts[0].RW || info.Mounts[1].RW {
		t.Errorf("%+v\n%+v", c, info.Mounts)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", sidecarOf(t, r, h)))
	if err != nil {
		t.Fatal(err)
	}
	admin := fmt.Sprintf("%016x\n", 1<<unix.CAP_NET_ADMIN)
	for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t" + admin, "CapEff:\t" + admin, "CapBnd:\t" + admin, "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the sidecar's guard has no %q in\n%s", want, status)
		}
	}
	if err := r.Pause(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := r.SetMTU(t.Context(), h, 1400); err != nil { // the network goes on
		t.Error(err)
	}
	if err := r.Resume(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	g, err := r.Gauge(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	var shown bytes.Buffer
	if code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/guest", "show", runtime.SecretsDir + "/key"}, Stdout: &shown}); err != nil || code != 0 || shown.String() != "value" {
		t.Errorf("%q, %d, %v", shown.String(), code, err)
	}
	if st, err := r.Stats(t.Context(), h); err != nil || st.MemoryMiB == 0 && st.CPUMillis == 0 {
		t.Errorf("%+v, %v", st, err)
	}

	s = node(t, s.Image, 0, "sleep")
	s.GPUs = []string{"GPU-aaaa"}
	h = start(t, r, s)
	for pid, want := range map[int]string{guardOf(t, r, h): "NVIDIA_VISIBLE_DEVICES=GPU-aaaa\x00", sidecarOf(t, r, h): "NVIDIA_VISIBLE_DEVICES=void\x00"} {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || !strings.Contains(string(env), want) {
			t.Errorf("%q, %v; want %q", env, err, want)
		}
	}
}

// carry takes packets from one TUN to the other, as the peers do.
func carry(t *testing.T, from, to *os.File) {
	t.Helper()
	b := make([]byte, 128<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		_, _ = to.Write(b[:n])
	}
}

func tun(t *testing.T, r *Runtime, h runtime.Handle) *os.File {
	t.Helper()
	f, err := r.Tun(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Two containers reach each other when their devices' packets are carried, before and after a peer's restart.
func TestOverlayCarried(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	var handles [2]runtime.Handle
	for i := range handles {
		handles[i] = start(t, r, node(t, ref, i, "nodes", fmt.Sprintf("this is %d", i), fmt.Sprintf("10.77.0.%d:7000", 3-i)))
	}
	a, b := tun(t, r, handles[0]), tun(t, r, handles[1])
	go carry(t, a, b)
	go carry(t, b, a)
	for i, h := range handles {
		log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("[127.0.0.1/8 10.77.0.%d/16]\nother says this is %d\n", 2+i, 1-i)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(log, got); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		_ = log.Close()
	}
}

func TestOverlayDevice(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	h := start(t, r, node(t, ref, 0, "serve", "10.77.0.2:7000", "here"))
	f := tun(t, r, h)
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	var ifr *unix.Ifreq
	if ifr, err = unix.NewIfreq(""); err == nil {
		err = unix.IoctlIfreq(int(f.Fd()), unix.TUNGETIFF, ifr)
	}
	if want := uint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR); err != nil || ifr.Name() != runtime.OverlayDevice || ifr.Uint16()&want != want {
		t.Errorf("device %q %#x, %v", ifr.Name(), ifr.Uint16(), err)
	}
	_ = f.SetReadDeadline(time.Now()) // it can be waited for
	if _, err := f.Read(make([]byte, 2000)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading: %v", err)
	}
	show := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code, err := r.Attach(t.Context(), h, runtime.Process{Args: args, Stdout: &out}); err != nil || code != 0 {
			t.Fatal(code, err)
		}
		return out.String()
	}
	if err := r.SetMTU(t.Context(), h, 1500); err != nil {
		t.Fatal(err)
	}
	if got := show("/guest", "show", "/sys/class/net/ovl0/mtu"); got != "1500\n" {
		t.Errorf("MTU %s", got)
	}
	if err := r.SetMTU(t.Context(), h, runtime.MaxMTU+1); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("a jumbo MTU: %v", err)
	}
	conn, err := r.Dial(t.Context(), h, 7000) // it listens at the overlay's address alone
	for err != nil && strings.Contains(err.Error(), "refused") {
		conn, err = r.Dial(t.Context(), h, 7000)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "here\n" {
		t.Errorf("%q, %v", got, err)
	}
	_ = conn.Close()
	plain := start(t, r, probe(t, ref, "sleep"))
	if _, err := r.Tun(t.Context(), plain); !errors.Is(err, runtime.ErrNoOverlay) {
		t.Errorf("a device of one without an overlay: %v", err)
	}
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tun(t.Context(), h); !errors.Is(err, runtime.ErrEnded) {
		t.Errorf("a device of what has ended: %v", err)
	}
	until(t, "the containers are gone", func() bool { return containers(t, r) == 1 })
	if entries, err := filepath.Glob(filepath.Join(h.Dir, rundir.NetDir, "*")); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// The agent in a container reaches whoever has the service address, and joins input, outputs and exit code.
func TestOverlayAgent(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	service := node(t, ref, 0, "rshd")
	service.Overlay.Address = netip.MustParseAddrPort(agent.Address).Addr()
	d, h := start(t, r, service), start(t, r, node(t, ref, 0, "sleep"))
	a, b := tun(t, r, d), tun(t, r, h)
	go carry(t, a, b)
	go carry(t, b, a)
	until(t, "it listens", func() bool { return output(t, d, runtime.Stdout) == "ready\n" })
	text := strings.Repeat("carried ", 100_000)
	var out, errs bytes.Buffer
	code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{runtime.AgentPath, "-x", "node-1", "A=1;", "orted"}, Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errs})
	if want := fmt.Sprintf("node-1: %q after %d bytes\n", []string{"/bin/sh", "-c", "A=1; orted"}, len(text)); err != nil || code != 9 || out.String() != text || errs.String() != want {
		t.Errorf("code %d, %v, %d bytes, %q", code, err, out.Len(), errs.String())
	}
	errs.Reset()
	if code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{runtime.AgentPath, "node-1"}, Stderr: &errs}); err != nil || code != 255 || !strings.Contains(errs.String(), "usage") {
		t.Errorf("code %d, %v, %q", code, err, errs.String())
	}
	plain := start(t, r, probe(t, ref, "sleep"))
	if _, err := r.Attach(t.Context(), plain, runtime.Process{Args: []string{runtime.AgentPath}}); err == nil {
		t.Error("one without an overlay has an agent")
	}
}

func TestCanOverlay(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	node(t, "", 0) // skips where there is no device
	for range 2 {
		if err := r.CanOverlay(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := containers(t, r); n != 0 {
		t.Errorf("%d containers are left", n)
	}
	private := filepath.Join(t.TempDir(), "guard")
	b, err := os.ReadFile(guardBin)
	if err == nil {
		err = os.WriteFile(private, b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, shared, func(c *Config) { c.Guard = private })
	if err := r.CanOverlay(t.Context()); !errors.Is(err, runtime.ErrNoOverlay) || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a guard that nobody else may run: %v", err)
	}
	r.engine.Mapped = true // as an engine that maps users
	info, err := os.Stat(sidecar.TunDevice)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CanOverlay(t.Context()); info.Mode()&0o006 != 0o006 && !strings.Contains(err.Error(), sidecar.TunDevice) && !errors.Is(err, runtime.ErrNoOverlay) {
		t.Errorf("a device that is root's alone: %v", err)
	}
	if _, err := r.Start(t.Context(), node(t, pulled(t, r, "plain", nil), 0, "sleep")); !errors.Is(err, runtime.ErrNoOverlay) {
		t.Errorf("a start: %v", err)
	}
	if n := containers(t, r); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}
