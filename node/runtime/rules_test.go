package runtime

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/sign"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// container is a valid spec of a container with a bit of everything.
func container() Spec {
	s := validSpec()
	s.Module, s.Image, s.WorkDir, s.User = "", "ghcr.io/acme/x:v1"+digest, "/app", MaxUser
	s.Layer = "/x/layer"
	s.Entrypoint, s.GPUs = []string{"python", ""}, []string{"GPU-1"}
	s.Secrets, s.SecretEnv = map[string][]byte{"a.pem": nil}, map[string]string{"TOKEN": ""}
	return s
}

// Every rule of a container's spec is held, names its field, and shows no value of a secret.
func TestContainerSpecCheck(t *testing.T) {
	t.Parallel()
	if err := container().Check(); err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2\x00"
	env := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("V", i)] = ""
		}
		return m
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(*Spec)
	}{
		"both programs":        {"Image", func(s *Spec) { s.Module = "/m.wasm" }},
		"no digest":            {"Image", func(s *Spec) { s.Image = "alpine:3" }},
		"a short digest":       {"Image", func(s *Spec) { s.Image = s.Image[:len(s.Image)-1] }},
		"a long name":          {"Image", func(s *Spec) { s.Image = strings.Repeat("a", maxImage) + digest }},
		"an upper-case name":   {"Image", func(s *Spec) { s.Image = "Alpine" + digest }},
		"a line in the name":   {"Image", func(s *Spec) { s.Image = "alpine\n" + digest }},
		"a relative directory": {"WorkDir", func(s *Spec) { s.WorkDir = "app" }},
		"an unclean directory": {"WorkDir", func(s *Spec) { s.WorkDir = "/app/" }},
		"a long directory":     {"WorkDir", func(s *Spec) { s.WorkDir = "/" + strings.Repeat("a", maxPath) }},
		"NUL in the directory": {"WorkDir", func(s *Spec) { s.WorkDir = "/a\x00" }},
		"a relative layer":     {"Layer", func(s *Spec) { s.Layer = "layer" }},
		"a layer in Dir":       {"Layer", func(s *Spec) { s.Layer = s.Dir + "/layer" }},
		"a layer around Dir":   {"Layer", func(s *Spec) { s.Layer = "/x" }},
		"a layer that shows":   {"Mounts[1].Host", func(s *Spec) { s.Layer = "/x/out/layer" }},
		"many devices":         {"GPUs", func(s *Spec) { s.GPUs = make([]string, MaxGPUs+1) }},
		"a device of no name":  {"GPUs[1]", func(s *Spec) { s.GPUs = []string{"GPU-1", ""} }},
		"a device and a flag":  {"GPUs[0]", func(s *Spec) { s.GPUs[0] = "0,capabilities=all" }},
		"an empty program":     {"Entrypoint[0]", func(s *Spec) { s.Entrypoint = []string{""} }},
		"NUL in the program":   {"Entrypoint[1]", func(s *Spec) { s.Entrypoint[1] = "\x00" }},
		"many arguments":       {"Args", func(s *Spec) { s.Args = make([]string, MaxArgs-1) }},
		"a long environment": {"Args", func(s *Spec) {
			s.Env = map[string]string{"A": strings.Repeat("a",
				MaxArgBytes)}
		}},
		"no text":              {"Args[0]", func(s *Spec) { s.Args = []string{"\xff"} }},
		"another user":         {"User", func(s *Spec) { s.User++ }},
		"a secret further up":  {"Secrets", func(s *Spec) { s.Secrets[".."] = nil }},
		"a secret in a folder": {"Secrets", func(s *Spec) { s.Secrets["a/b"] = nil }},
		"a large secret":       {"Secrets", func(s *Spec) { s.Secrets["b"] = make([]byte, MaxSecretBytes+1) }},
		"many secrets":         {"Secrets", func(s *Spec) { s.SecretEnv = env(MaxSecrets) }},
		"a secret of no text":  {"SecretEnv", func(s *Spec) { s.SecretEnv["TOKEN"] = secret }},
		"a secret of no name":  {"SecretEnv", func(s *Spec) { s.SecretEnv[""] = "" }},
		"a mount in the keep":  {"Mounts[0].Guest", func(s *Spec) { s.Mounts[0].Guest = SecretsDir + "/x" }},
		"a mount of the root":  {"Mounts[0].Host", func(s *Spec) { s.Mounts[0].Host = "/" }},
		"a module's seed":      {"Module", func(s *Spec) { s.Image = "" }},
	} {
		s := container()
		tc.edit(&s)
		err := s.Check()
		var se *SpecError
		if !errors.Is(err, ErrInvalidSpec) || !errors.As(err, &se) || se.Field != tc.field ||
			strings.Contains(err.Error(), secret[:7]) || len(err.Error()) > 900 {
			t.Errorf("%s: got %v, want an error about %s", name, err, tc.field)
		}
	}
	for field, edit := range map[string]func(*Spec){
		"Entrypoint": func(s *Spec) { s.Entrypoint = []string{"x"} }, "WorkDir": func(s *Spec) { s.WorkDir = "/x" },
		"GPUs":    func(s *Spec) { s.GPUs = []string{"x"} },
		"Secrets": func(s *Spec) { s.Secrets = map[string][]byte{"/": nil} },
	} {
		s := validSpec()
		edit(&s)
		if se, ok := errors.AsType[*SpecError](s.Check()); !ok || se.Field != field {
			t.Errorf("a module with %s: %v", field, s.Check())
		}
	}
}

// A handle is held to the rules of a spec: above all, it never names the root of this machine as its own directory.
func TestHandleCheck(t *testing.T) {
	t.Parallel()
	good := Handle{Runtime: "wasm", ID: "a", Dir: "/x/y", Data: []byte{0}}
	b, err := good.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := UnmarshalHandle(b); err != nil || fmt.Sprint(back) != fmt.Sprint(good) {
		t.Errorf("got %+v, %v", back, err)
	}
	for name, h := range map[string]Handle{
		"no runtime": {ID: "a", Dir: "/x"}, "no id": {Runtime: "wasm", Dir: "/x"}, "the root": {Runtime: "wasm",
			ID: "a", Dir: "/"},
		"no directory": {Runtime: "wasm", ID: "a"}, "relative": {Runtime: "wasm", ID: "a", Dir: "x"},
		"further up": {Runtime: "wasm", ID: "a", Dir: "/x/.."}, "NUL": {Runtime: "wasm", ID: "a", Dir: "/x\x00"},
		"long": {Runtime: "wasm", ID: "a", Dir: "/" + strings.Repeat("x", maxPath)}, "a dot": {Runtime: "wasm",
			ID: ".", Dir: "/x"},
	} {
		if err := h.Check(); !errors.Is(err, ErrBadHandle) {
			t.Errorf("%s: %v, want ErrBadHandle", name, err)
		}
	}
	good.Data = make([]byte, MaxHandle)
	if _, err := good.Marshal(); !errors.Is(err, ErrBadHandle) {
		t.Errorf("a large handle: %v", err)
	}
	for _, text := range []string{"", "null", "{}", string(b) + "x", string(b) + string(b), `{"runtime":1}`,
		`{"more":1}`,
		strings.Repeat(" ", MaxHandle) + string(b)} {
		if h, err := UnmarshalHandle([]byte(text)); !errors.Is(err, ErrBadHandle) || h.Dir != "" {
			t.Errorf("%.60q: got %+v, %v, want ErrBadHandle", text, h, err)
		}
	}
}

// The outermost of directories are in no other one, and every directory is one of them or lies in one.
func TestOutermostProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dirs := rapid.SliceOfN(rapid.StringMatching(`(/(a|a-b|ab|b)){1,3}`), 0, 8).Draw(t, "dirs")
		out := Outermost(slices.Clone(dirs))
		for i, p := range out {
			if !slices.Contains(dirs, p) {
				t.Fatalf("%s is none of %v", p, dirs)
			}
			for k, o := range out {
				if i != k && within(p, o) {
					t.Fatalf("%s lies in %s, both of %v", p, o, out)
				}
			}
		}
		for _, p := range dirs {
			if !slices.ContainsFunc(out, func(o string) bool { return within(p, o) }) {
				t.Fatalf("%s is in none of %v", p, out)
			}
		}
	})
}

// A mount hides a directory of an image at that directory, and of the kernel's anywhere below it.
func TestHidesSystem(t *testing.T) {
	t.Parallel()
	for guest, want := range map[string]bool{
		"/bin": true, "/usr": true, "/usr/local/lib": true, "/etc": true, "/dev": true, "/dev/shm": true,
		"/proc/1": true, "/sys": true,
		"/usr/share": false, "/etc/app": false, "/bin2": false, "/device": false, "/data/bin": false,
		"/home": false, "/system": false,
	} {
		if got := HidesSystem(guest); got != want {
			t.Errorf("%s: %v, want %v", guest, got, want)
		}
	}
}

// Defaults fill zeros alone, and are filled in once.
func TestLimitsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]uint32{0, 1, 64, 4096, math.MaxUint32})
		l := Limits{MemoryMiB: value.Draw(t, "memory"), MilliCPU: value.Draw(t, "cpu"), DiskMiB: value.Draw(t, "disk"),
			LogMiB: value.Draw(t, "log"), ShmMiB: value.Draw(t, "shm"), Pids: value.Draw(t, "pids")}
		d := l.WithDefaults()
		for _, f := range [][2]uint32{{l.MemoryMiB, d.MemoryMiB}, {l.DiskMiB, d.DiskMiB}, {l.LogMiB, d.LogMiB},
			{l.ShmMiB, d.ShmMiB}, {l.Pids, d.Pids}} {
			if f[1] == 0 || f[0] != 0 && f[1] != f[0] {
				t.Fatalf("%+v becomes %+v", l, d)
			}
		}
		if d.MilliCPU != l.MilliCPU || d.WithDefaults() != d {
			t.Fatalf("%+v becomes %+v", l, d)
		}
	})
}

// An overlay's missing files are made of its name and address, and those that it brings are kept.
func TestAllFiles(t *testing.T) {
	t.Parallel()
	o := &Overlay{Address: netip.MustParseAddr("10.1.2.3"), PrefixBits: 16, Hostname: "node-1",
		Files: map[string][]byte{"/etc/hostname": []byte("own\n"), "/etc/cluster/x": []byte("y")}}
	want := map[string]string{"/etc/hosts": "127.0.0.1 localhost\n10.1.2.3 node-1\n", "/etc/resolv.conf": "",
		"/etc/hostname": "own\n", "/etc/cluster/x": "y"}
	got := map[string]string{}
	for name, content := range o.AllFiles() {
		got[name] = string(content)
	}
	if !maps.Equal(got, want) || len(o.Files) != 2 || o.Prefix() != netip.MustParsePrefix("10.1.0.0/16") {
		t.Errorf("got %q in %v, want %q", got, o.Prefix(), want)
	}
	o.Alone, o.MTU = true, MinMTU
	if err := o.Check(); !errors.Is(err, ErrInvalidSpec) {
		t.Errorf("files of a cluster for an execution that is alone: %v", err)
	}
}

// A failure is its class and its cause, and shows the cause to the operator alone.
func TestFailure(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial 10.0.0.1: refused")
	f := &Failure{Class: ErrRegistry, Of: "acme/x", Advice: "try later", Cause: cause}
	if !errors.Is(f, ErrRegistry) || !errors.Is(f, cause) || errors.Is(f, ErrNoRoom) {
		t.Error("it is not its class and its cause alone")
	}
	if got := f.Told(); got != "acme/x: registry cannot be reached: try later" || f.Error() != got+": "+cause.Error() {
		t.Errorf("the other side gets %q, the log %q", got, f.Error())
	}
	f.Of, f.Cause = "", nil
	if got := f.Told(); got != "registry cannot be reached: try later" || f.Error() != got || len(f.Unwrap()) != 1 {
		t.Errorf("without cause: %q and %q", got, f.Error())
	}
	if !(Exit{}).OK() || (Exit{Code: 1}).OK() || (Exit{Reason: ReasonOOM}).OK() {
		t.Error("an execution succeeds with code 0 and without a reason")
	}
}

// One device computes one product: more or none are refused, and the first error ends it.
func TestOne(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	multiply := func(seed sign.Hash) ([]sign.Hash, error) { return []sign.Hash{seed, {2}}, nil }
	var got []sign.Hash
	keep := func(i int, tiles []sign.Hash) error { got = append(got, tiles...); return nil }
	if err := One([]sign.Hash{{1}}, keep, multiply); err != nil || !slices.Equal(got, []sign.Hash{{1}, {2}}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, seeds := range [][]sign.Hash{nil, {{1}, {2}}} {
		if err := One(seeds, keep, multiply); !errors.Is(err, ErrDevice) {
			t.Errorf("%d products: %v", len(seeds), err)
		}
	}
	fail := func(sign.Hash) ([]sign.Hash, error) { return nil, broken }
	if err := One([]sign.Hash{{1}}, keep, fail); !errors.Is(err, broken) || len(got) != 2 {
		t.Errorf("a broken device: %v, %d tiles", err, len(got))
	}
	refuse := func(int, []sign.Hash) error { return broken }
	if err := One([]sign.Hash{{1}}, refuse, multiply); !errors.Is(err, broken) {
		t.Errorf("tiles that nobody takes: %v", err)
	}
}
