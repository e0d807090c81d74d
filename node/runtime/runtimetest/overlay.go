package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// overlay is one of a member of a cluster.
func overlay() *runtime.Overlay {
	return &runtime.Overlay{
		Address: netip.MustParseAddr("10.77.0.2"), PrefixBits: 16, MTU: 1280, Hostname: "node-0",
		Files: map[string][]byte{
			"/etc/hosts":                     []byte("10.77.0.2 node-0 head\n"),
			runtime.OverlayDir + "/hostfile": []byte("node-0 slots=1\n"),
		},
	}
}

func testOverlay(t *testing.T, b *bench) {
	s := b.spec(t, "gate", "/in/go")
	s.Overlay = overlay()
	n, ok := b.Runtime.(runtime.Networker)
	if !ok {
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, "an overlay on a runtime without overlays", err, runtime.ErrInvalidSpec)
		return
	}
	if err := n.CanOverlay(t.Context()); errors.Is(err, runtime.ErrNoOverlay) {
		_, started := b.Runtime.Start(t.Context(), s)
		wantErr(t, "an overlay that this machine cannot give", started, runtime.ErrNoOverlay)
		t.Skip(err)
	} else {
		must(t, err)
	}
	h := b.start(t, s)
	shows := func(path, want string) {
		t.Helper()
		var out bytes.Buffer
		show := runtime.Process{Args: []string{b.Command, "show", path}, Stdout: &out}
		code, err := b.Runtime.(runtime.Attacher).Attach(t.Context(), h, show)
		if err != nil || code != 0 || out.String() != want {
			t.Errorf("%s: %q, %d, %v; want %q", path, out.String(), code, err, want)
		}
	}
	shows("/etc/hosts", "10.77.0.2 node-0 head\n")
	shows("/etc/resolv.conf", "")
	shows("/etc/hostname", "node-0\n")
	shows(runtime.OverlayDir+"/hostfile", "node-0 slots=1\n")

	hosts := strings.Repeat("10.77.0.3 node-1\n", 100)
	must(t, n.SetFiles(t.Context(), h, map[string][]byte{
		"/etc/hosts":                  []byte(hosts),
		runtime.OverlayDir + "/hosts": []byte("new"),
	}))
	shows("/etc/hosts", hosts)
	must(t, n.SetFiles(t.Context(), h, map[string][]byte{
		"/etc/hosts":                     []byte("short\n"),
		runtime.OverlayDir + "/hostfile": nil,
	}))
	shows("/etc/hosts", "short\n")
	shows(runtime.OverlayDir+"/hosts", "new")
	shows(runtime.OverlayDir+"/hostfile", "")
	for _, bad := range []string{
		"/etc/passwd", runtime.OverlayDir + "/../passwd", runtime.OverlayDir + "/a/b",
		runtime.OverlayDir, "etc/hosts", "",
	} {
		wantErr(t, bad, n.SetFiles(t.Context(), h, map[string][]byte{bad: nil}), runtime.ErrInvalidSpec)
	}
	must(t, n.SetMTU(t.Context(), h, 1420))
	wantErr(t, "an MTU of 100", n.SetMTU(t.Context(), h, 100), runtime.ErrInvalidSpec)
	haveTun(t, n, h)

	b.restart(t)
	n = b.Runtime.(runtime.Networker)
	_, err := n.Tun(t.Context(), h)
	wantErr(t, "the device before it is recovered", err, runtime.ErrNotFound)
	must(t, b.Runtime.Recover(t.Context(), h))
	haveTun(t, n, h)
	must(t, n.SetMTU(t.Context(), h, 1400))
	must(t, n.SetFiles(t.Context(), h, map[string][]byte{"/etc/hosts": []byte("again\n")}))
	shows("/etc/hosts", "again\n")

	must(t, os.WriteFile(filepath.Join(s.Mounts[0].Host, "go"), nil, 0o644))
	if e := b.wait(t, h); !e.OK() {
		t.Errorf("ended with %+v", e)
	}
	_, err = n.Tun(t.Context(), h)
	wantErr(t, "the device of an ended execution", err, runtime.ErrEnded)
	wantErr(t, "the files of an ended execution", n.SetFiles(t.Context(), h, nil), runtime.ErrEnded)
	wantErr(t, "the MTU of an ended execution", n.SetMTU(t.Context(), h, 1420), runtime.ErrEnded)
	without := b.start(t, b.spec(t, "polite"))
	_, err = n.Tun(t.Context(), without)
	wantErr(t, "the device of one without an overlay", err, runtime.ErrNoOverlay)
}

// haveTun checks twice that a device can be waited for.
func haveTun(t *testing.T, n runtime.Networker, h runtime.Handle) {
	t.Helper()
	for range 2 {
		f, err := n.Tun(t.Context(), h)
		must(t, err)
		must(t, f.SetReadDeadline(time.Unix(1, 0)))
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading: %v", err)
		}
		must(t, f.Close())
	}
}

func testInvalidOverlay(t *testing.T, b *bench) {
	for name, edit := range map[string]func(*runtime.Spec){
		"no address": func(s *runtime.Spec) { s.Overlay.Address = netip.Addr{} },
		"an MTU":     func(s *runtime.Spec) { s.Overlay.MTU = runtime.MaxMTU + 1 },
		"a file":     func(s *runtime.Spec) { s.Overlay.Files["/etc/shadow"] = nil },
		"a mount":    func(s *runtime.Spec) { s.Mounts[0].Guest = "/etc" },
	} {
		s := b.spec(t, "hello")
		s.Overlay = overlay()
		edit(&s)
		_, err := b.Runtime.Start(t.Context(), s)
		wantErr(t, name, err, runtime.ErrInvalidSpec)
		if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its directory is still there", name)
		}
	}
}

// fakeNet is the overlay of an execution of a Fake: files, and a device on which nothing ever comes.
type fakeNet struct {
	files  map[string][]byte
	mtu    int
	silent []*os.File // the other ends of the devices that were given
}

// overlayFile is the content at a path of the program's overlay.
func (e *execution) overlayFile(name string) ([]byte, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.net == nil {
		return nil, false
	}
	b, ok := e.net.files[path.Clean(name)]
	return b, ok
}

func (e *execution) closeNet() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.net != nil {
		for _, f := range e.net.silent {
			_ = f.Close()
		}
	}
}

// onNet runs f on the overlay of an execution that runs and has one.
func (f *Fake) onNet(h runtime.Handle, do func(*fakeNet) error) error {
	e, err := f.find(h)
	switch {
	case err != nil:
		return err
	case e.net == nil:
		return runtime.ErrNoOverlay
	case e.ended():
		return runtime.ErrEnded
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return do(e.net)
}

// CanOverlay is the Fake's NoOverlay.
func (f *Fake) CanOverlay(context.Context) error {
	if f.NoOverlay != "" {
		return fmt.Errorf("%w: %s", runtime.ErrNoOverlay, f.NoOverlay)
	}
	return nil
}

// Tun gives a device on which nothing ever comes.
func (f *Fake) Tun(_ context.Context, h runtime.Handle) (ours *os.File, err error) {
	err = f.onNet(h, func(n *fakeNet) error {
		r, w, err := os.Pipe()
		if err == nil {
			ours, n.silent = r, append(n.silent, w)
		}
		return err
	})
	return ours, err
}

// SetFiles replaces files that the program finds.
func (f *Fake) SetFiles(_ context.Context, h runtime.Handle, files map[string][]byte) error {
	if err := runtime.CheckOverlayFiles(files); err != nil {
		return err
	}
	return f.onNet(h, func(n *fakeNet) error {
		maps.Copy(n.files, files)
		return nil
	})
}

// SetMTU notes it.
func (f *Fake) SetMTU(_ context.Context, h runtime.Handle, mtu int) error {
	if err := runtime.CheckMTU(mtu); err != nil {
		return err
	}
	return f.onNet(h, func(n *fakeNet) error {
		n.mtu = mtu
		return nil
	})
}

// OverlayFile is the current content at a path of an execution's overlay.
func (f *Fake) OverlayFile(h runtime.Handle, name string) ([]byte, bool) {
	e, err := f.find(h)
	if err != nil {
		return nil, false
	}
	return e.overlayFile(name)
}

// OverlayFiles are the current contents at a path of the overlays of each execution that runs on this machine.
func (f *Fake) OverlayFiles(name string) (out [][]byte) {
	f.m.mu.Lock()
	running := slices.Collect(maps.Values(f.m.running))
	f.m.mu.Unlock()
	for _, e := range running {
		if b, ok := e.overlayFile(name); ok && !e.ended() {
			out = append(out, b)
		}
	}
	return out
}

// MTU returns the current MTU of an execution's overlay; 0 without one.
func (f *Fake) MTU(h runtime.Handle) (mtu int) {
	_ = f.onNet(h, func(n *fakeNet) error {
		mtu = n.mtu
		return nil
	})
	return mtu
}
