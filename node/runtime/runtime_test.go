package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func validSpec() Spec {
	return Spec{ID: "a", Module: "/m.wasm", Dir: "/x/run", Mounts: []Mount{{Host: "/x/in", Guest: "/data", ReadOnly: true}, {Host: "/x/out", Guest: "/out"}}}
}

func TestSpecCheck(t *testing.T) {
	t.Parallel()
	if err := validSpec().Check(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(*Spec)
	}{
		"a module's layer":  {"Layer", func(s *Spec) { s.Layer = "/x/layer" }},
		"no id":             {"ID", func(s *Spec) { s.ID = "" }},
		"id with slash":     {"ID", func(s *Spec) { s.ID = "a/b" }},
		"id dot":            {"ID", func(s *Spec) { s.ID = ".." }},
		"no module":         {"Module", func(s *Spec) { s.Module = "" }},
		"relative dir":      {"Dir", func(s *Spec) { s.Dir = "x" }},
		"unclean dir":       {"Dir", func(s *Spec) { s.Dir = "/x/../y" }},
		"root dir":          {"Dir", func(s *Spec) { s.Dir = "/" }},
		"too many args":     {"Args", func(s *Spec) { s.Args = make([]string, MaxArgs+1) }},
		"long args":         {"Args", func(s *Spec) { s.Args = []string{strings.Repeat("a", MaxArgBytes)} }},
		"NUL in arg":        {"Args[0]", func(s *Spec) { s.Args = []string{"a\x00"} }},
		"env name":          {"Env", func(s *Spec) { s.Env = map[string]string{"A=B": "c"} }},
		"env value":         {"Env", func(s *Spec) { s.Env = map[string]string{"A": "\x00"} }},
		"wall time":         {"Limits.WallTime", func(s *Spec) { s.Limits.WallTime = -time.Second }},
		"relative host":     {"Mounts[0].Host", func(s *Spec) { s.Mounts[0].Host = "in" }},
		"dir in mount":      {"Mounts[1].Host", func(s *Spec) { s.Mounts[1].Host = "/x" }},
		"mount in dir":      {"Mounts[1].Host", func(s *Spec) { s.Mounts[1].Host = "/x/run/out" }},
		"guest root":        {"Mounts[0].Guest", func(s *Spec) { s.Mounts[0].Guest = "/" }},
		"guest traversal":   {"Mounts[0].Guest", func(s *Spec) { s.Mounts[0].Guest = "/data/../etc" }},
		"guest nested":      {"Mounts[1].Guest", func(s *Spec) { s.Mounts[1].Guest = "/data/out" }},
		"guest twice":       {"Mounts[1].Guest", func(s *Spec) { s.Mounts[1].Guest = "/data" }},
		"guest control dir": {"Mounts[1].Guest", func(s *Spec) { s.Mounts[1].Guest = "/run" }},
		"too many mounts":   {"Mounts", func(s *Spec) { s.Mounts = make([]Mount, MaxMounts+1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := validSpec()
			tc.edit(&s)
			err := s.Check()
			var se *SpecError
			if !errors.Is(err, ErrInvalidSpec) || !errors.As(err, &se) || se.Field != tc.field {
				t.Fatalf("got %v, want an error about %s", err, tc.field)
			}
		})
	}
}

func TestMountsWithAlikePrefixesAreApart(t *testing.T) {
	t.Parallel()
	s := validSpec()
	s.Mounts[1].Guest = "/data2"
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestOverlayCheck(t *testing.T) {
	t.Parallel()
	valid := func() *Overlay {
		return &Overlay{Address: netip.MustParseAddr("10.77.0.2"), PrefixBits: 16, MTU: 1420, Hostname: "node-0", Files: map[string][]byte{
			"/etc/hosts": []byte("x"), "/etc/resolv.conf": nil, "/etc/hostname": nil, "/etc/cluster/cluster.json": nil}}
	}
	s := validSpec()
	s.Overlay = valid()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(*Overlay)
	}{
		"no address":        {"Overlay.Address", func(o *Overlay) { o.Address = netip.Addr{} }},
		"IPv6":              {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("fd00::2") }},
		"mapped":            {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("::ffff:10.77.0.2") }},
		"loopback":          {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("127.0.0.2") }},
		"multicast":         {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("224.0.0.2") }},
		"metadata":          {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("169.254.169.254") }},
		"network":           {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("10.77.0.0") }},
		"broadcast":         {"Overlay.Address", func(o *Overlay) { o.Address = netip.MustParseAddr("10.77.255.255") }},
		"everybody":         {"Overlay.PrefixBits", func(o *Overlay) { o.PrefixBits = 0 }},
		"negative prefix":   {"Overlay.PrefixBits", func(o *Overlay) { o.PrefixBits = -1 }},
		"nobody":            {"Overlay.PrefixBits", func(o *Overlay) { o.PrefixBits = 32 }},
		"small packets":     {"Overlay.MTU", func(o *Overlay) { o.MTU = MinMTU - 1 }},
		"large packets":     {"Overlay.MTU", func(o *Overlay) { o.MTU = MaxMTU + 1 }},
		"no name":           {"Overlay.Hostname", func(o *Overlay) { o.Hostname = "" }},
		"two names":         {"Overlay.Hostname", func(o *Overlay) { o.Hostname = "a b" }},
		"name with a dot":   {"Overlay.Hostname", func(o *Overlay) { o.Hostname = "a.b" }},
		"name with a line":  {"Overlay.Hostname", func(o *Overlay) { o.Hostname = "a\n" }},
		"long name":         {"Overlay.Hostname", func(o *Overlay) { o.Hostname = strings.Repeat("a", 64) }},
		"another file":      {"Overlay.Files", func(o *Overlay) { o.Files["/etc/passwd"] = nil }},
		"a file further up": {"Overlay.Files", func(o *Overlay) { o.Files["/etc/cluster/../passwd"] = nil }},
		"a hidden file":     {"Overlay.Files", func(o *Overlay) { o.Files["/etc/cluster/.x"] = nil }},
		"the directory":     {"Overlay.Files", func(o *Overlay) { o.Files["/etc/cluster/"] = nil }},
		"large files":       {"Overlay.Files", func(o *Overlay) { o.Files["/etc/hosts"] = make([]byte, MaxOverlayBytes+1) }},
		"many files": {"Overlay.Files", func(o *Overlay) {
			for i := range MaxOverlayFiles {
				o.Files[fmt.Sprintf("/etc/cluster/%d", i)] = nil
			}
		}},
	} {
		s.Overlay = valid()
		tc.edit(s.Overlay)
		err := s.Check()
		var se *SpecError
		if !errors.Is(err, ErrInvalidSpec) || !errors.As(err, &se) || se.Field != tc.field {
			t.Errorf("%s: got %v, want an error about %s", name, err, tc.field)
		}
	}
	for _, guest := range []string{"/etc", "/etc/hosts", "/etc/cluster", "/etc/cluster/x", "/etc/resolv.conf/x"} {
		s.Overlay, s.Mounts[0].Guest = valid(), guest
		if err := s.Check(); !errors.Is(err, ErrInvalidSpec) {
			t.Errorf("a mount at %s: %v", guest, err)
		}
		s.Overlay = nil
		if err := s.Check(); err != nil {
			t.Errorf("a mount at %s without an overlay: %v", guest, err)
		}
	}
}

func FuzzUnmarshalHandle(f *testing.F) {
	f.Add([]byte(`{"runtime":"wasm","id":"a","dir":"/x/y","data":"AAE="}`))
	f.Add([]byte(`{"runtime":"wasm","id":"../a","dir":"/x/y"}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := UnmarshalHandle(b)
		if err != nil {
			if !errors.Is(err, ErrBadHandle) {
				t.Fatalf("error is no ErrBadHandle: %v", err)
			}
			return
		}
		c, err := h.Marshal()
		if err != nil {
			t.Skip() // escapes may make the encoding longer than the bound
		}
		g, err := UnmarshalHandle(c)
		if err != nil {
			t.Fatal(err)
		}
		if g.ID != h.ID || g.Dir != h.Dir || g.Runtime != h.Runtime || string(g.Data) != string(h.Data) {
			t.Fatalf("%+v became %+v", h, g)
		}
	})
}

func TestLogWriterCuts(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := NewLogWriter(&b, 10)
	for range 5 {
		if n, err := w.Write([]byte("abcd")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	}
	want := "abcdabcdab" + LogCutMarker + "10 bytes reached]\n"
	if b.String() != want {
		t.Fatalf("%q, want %q", b.String(), want)
	}
}
