package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/volume"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// layersEngine starts the engine that knows package ociruntime.
var layersEngine = sync.OnceValue(func() error {
	config, err := layersConfig(bin, guardBin)
	if err == nil {
		layered, err = testengine.Start(context.Background(), testengine.Options{Args: []string{"--config-file", config}})
	}
	return err
})

// layersConfig writes the configuration of an engine that knows package ociruntime, in a binary.
func layersConfig(dir, binary string) (config string, err error) {
	config = filepath.Join(dir, "layers.json")
	text := fmt.Sprintf(`{"runtimes": {%q: {"path": %q, "runtimeArgs": [%q]}}}`, ociruntime.Name, binary, ociruntime.Subcommand)
	return config, os.WriteFile(config, []byte(text), 0o600)
}

// layers is a peer whose containers have layers.
func layers(t testing.TB, change func(*Config)) *Runtime {
	t.Helper()
	needEngine(t)
	if err := layersEngine(); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, layered, change)
	if err := r.volumes.None(); err != nil {
		t.Skip(err)
	}
	if !r.KeepsLayers() {
		t.Fatal("its containers have no layers")
	}
	return r
}

// withLayer gives a spec a layer in a volume of its disk limit.
func withLayer(t testing.TB, r *Runtime, s *runtime.Spec) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	t.Cleanup(func() {
		if err := volume.Release(dir); err != nil {
			t.Error(err)
		}
	})
	if err := r.MakeVolume(t.Context(), dir, int64(s.Limits.WithDefaults().DiskMiB)<<20); err != nil {
		t.Fatal(err)
	}
	s.Layer = filepath.Join(dir, "layer")
}

// inLayers gives every execution of a runtime a layer.
type inLayers struct {
	*Runtime
	t *testing.T
}

func (l inLayers) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	if s.Check() == nil && s.Image != "" {
		withLayer(l.t, l.Runtime, &s)
	}
	return l.Runtime.Start(ctx, s)
}

// Containers with layers keep the whole contract, with a program that is not root.
func TestConformanceLayers(t *testing.T) {
	t.Parallel()
	ref := pulled(t, layers(t, nil), "user", func(c *v1.ConfigFile) { c.Config.User = "1234:1234" })
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		r := layers(t, nil)
		peer := r.cfg.Peer
		return runtimetest.Subject{
			Runtime: inLayers{r, t},
			Restart: func(t *testing.T) runtime.Runtime {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = layers(t, func(c *Config) { c.Peer = peer })
				return inLayers{r, t}
			},
			Program: ref, Images: true, Command: "/guest", Secrets: true, DiskKills: true, Home: true,
			Bad: map[string]string{
				"not pulled": "127.0.0.1:1/none@sha256:" + strings.Repeat("0", 64),
			},
		}
	})
}

// ordinary is an image as many are: its program has a user, whose home and data are its alone, and a helper that is root's.
func ordinary(t testing.TB, r *Runtime, change func(*v1.Config)) string {
	t.Helper()
	return pulled(t, r, "ordinary", func(c *v1.ConfigFile) {
		c.Config.User, c.Config.WorkingDir, c.Config.Volumes = "ml", "/home/ml", map[string]struct{}{"/store": {}, "/new/volume": {}}
		c.Config.Entrypoint = []string{"/probe"}
		if change != nil {
			change(&c.Config)
		}
	},
		testengine.File{Path: "/etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nml:x:1234:1234::/home/ml:/bin/sh\nfar:x:70000:1::/:\n", Mode: 0o644},
		testengine.File{Path: "/etc/group", Text: "ml:x:1234:\nextra:x:77:other,ml\n", Mode: 0o644},
		testengine.File{Path: "/home/ml/", Mode: 0o700, User: 1234},
		testengine.File{Path: "/store/", Mode: 0o700, User: 1234},
		testengine.File{Path: "/store/seed", Text: "seed", Mode: 0o600, User: 1234},
		testengine.File{Path: "/run/app/", Mode: 0o700, User: 1234},
		testengine.File{Path: "/run/app/seed", Text: "seed", Mode: 0o600, User: 1234},
		testengine.File{Path: "/root/", Mode: 0o700},
		testengine.File{Path: "/root/secret", Text: "secret", Mode: 0o600},
		testengine.File{Path: "/helper", From: probeBin, Mode: 0o4755},
	)
}

// in makes a spec of the probe in an image, as the image's user.
func in(t testing.TB, r *Runtime, image string, args ...string) runtime.Spec {
	t.Helper()
	s := spec(t, image, args...)
	s.Entrypoint, s.User, s.Limits.DiskMiB = []string{"/probe"}, nextUser(), 32
	withLayer(t, r, &s)
	return s
}

// nextUser is one that no other test has at the time.
func nextUser() uint32 { return uint32((os.Getpid()*131 + int(testCount.Add(1))) % runtime.MaxUser) }

// An image runs as it is, and its files belong on this machine to users of the lease.
func TestImageAsItIs(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	s := in(t, r, ordinary(t, r, nil), "asis")
	want := `user 1234 1234 [77] /home/ml /home/ml
home: done
read volume: done
volume: done
tmp: done
read of the image's run: done
run: done
read of root's: open /root/secret: permission denied
layer has /: done
layer has /tmp: done
layer has /store: done
layer has /run/app: done
xopen /dev/stdout: done
open /dev/stderr: done
find HOSTNAME: done
become root: done
read /root/secret: done
write /made: done
give /made: done
owner 5 6
make /made.d: done
remove /guest: done
change /etc/hosts: done
change /etc/hostname: done
change /etc/resolv.conf: done
helper: done
`
	if got := run(t, r, s); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	base := uint32(ociruntime.Base(s.User))
	for name, user := range map[string]uint32{"": 0, "home/ml/a": 1234, "store/a": 1234, "tmp/a": 1234, "run/app/a": 1234, "etc/hosts": 0, "made": 5, "new/volume": 0} {
		var f unix.Stat_t
		if err := unix.Lstat(filepath.Join(s.Layer, "upper", name), &f); err != nil || f.Uid != base+user {
			t.Errorf("/%s belongs to %d, %v; want %d", name, f.Uid, err, base+user)
		}
	}
	// The image is as before, and so is another container of it.
	s = in(t, r, s.Image, "asis")
	if got := run(t, r, s); got != want {
		t.Errorf("the second time:\n%s", got)
	}
}

// The program's user has its secrets and outputs, and so has what is attached.
func TestUserOfAnImageOwns(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	s := in(t, r, ordinary(t, r, nil), "sleep")
	out := filepath.Join(filepath.Dir(s.Layer), "out")
	if err := errors.Join(os.MkdirAll(filepath.Join(out, "deep"), 0o700), os.WriteFile(filepath.Join(out, "deep", "f"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.Secrets = map[string][]byte{"f": []byte("value")}
	s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
	h := start(t, r, s)
	for _, from := range []string{runtime.SecretsDir, "/out/deep"} {
		var said bytes.Buffer
		code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/probe", "owned", from, "/out"}, Stdout: &said})
		if got := strings.TrimSpace(said.String()); err != nil || code != 0 || got != "1234 /home/ml" {
			t.Fatalf("from %s: %q, %d, %v", from, got, code, err)
		}
		if err := os.RemoveAll(filepath.Join(out, "d")); err != nil {
			t.Fatal(err)
		}
	}
	var shown bytes.Buffer
	code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/probe", "tty"}, TTY: true, Stdin: strings.NewReader("word\n"), Stdout: &shown})
	if err != nil || code != 0 || !strings.HasSuffix(shown.String(), "read word\r\n") {
		t.Errorf("a terminal: %q, %d, %v", shown.String(), code, err)
	}
	if _, err := os.Lstat(filepath.Join(s.Layer, "upper", runtime.SecretsDir, "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret is on the disk, %v", err)
	}
	var f unix.Stat_t
	if err := unix.Stat(filepath.Join(out, "f"), &f); err != nil || f.Uid != uint32(ociruntime.Base(s.User)+1234) {
		t.Errorf("the output belongs to %d, %v", f.Uid, err)
	}
}

// An image whose user no program can have is refused before its program runs, whatever its files are.
func TestAttackUserOfAnImage(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	for name, test := range map[string]struct {
		user  string
		files []testengine.File
	}{
		"unknown":         {"nobody", nil},
		"unknown group":   {"0:nobody", nil},
		"out of range":    {"far", []testengine.File{{Path: "/etc/passwd", Text: "far:x:70000:1::/:\n"}}},
		"a large number":  {"4294967295", nil},
		"a long line":     {"far", []testengine.File{{Path: "/etc/passwd", Text: strings.Repeat("x", 1<<20)}}},
		"a directory":     {"far", []testengine.File{{Path: "/etc/passwd/"}}},
		"links in circle": {"far", []testengine.File{{Path: "/etc/passwd", Link: "group"}, {Path: "/etc/group", Link: "passwd"}}},
		"a device":        {"far", []testengine.File{{Path: "/etc/passwd", Link: "/dev/zero"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := pulled(t, r, "hostile", func(c *v1.ConfigFile) { c.Config.User = test.user }, test.files...)
			s := in(t, r, ref, "sleep")
			if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrBadImage) {
				t.Errorf("%v, want %v", err, runtime.ErrBadImage)
			}
			for _, left := range []string{s.Dir, s.Layer} {
				if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left", left)
				}
			}
		})
	}
}

// Root of a container is nobody outside of it.
func TestAttackRootOfAnImage(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	root := func(c *v1.Config) { c.User = "" }
	ref := ordinary(t, r, root)
	if got := run(t, r, in(t, r, ref, "guard")); got != "done\n" {
		t.Errorf("the guard can be had: %s", got)
	}
	got := run(t, r, in(t, r, ref, "escape"))
	if want := "CapBnd:\t00000000a80425fb\nSeccomp:\t2\ndone\n"; got != want {
		t.Errorf("it %s", got)
	}
	// An image whose /run leads elsewhere gives nobody the guard's place either.
	link := pulled(t, r, "link", nil, testengine.File{Path: "/run", Link: "/var/elsewhere"}, testengine.File{Path: "/var/elsewhere/"})
	if linked := run(t, r, in(t, r, link, "escape")); linked != got {
		t.Errorf("with a link for /run it %s", linked)
	}
	s := in(t, r, ref, "sleep")
	h := start(t, r, s)
	for _, name := range []string{"status", "uid_map", "gid_map"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", guardOf(t, r, h), name))
		want := fmt.Sprint("0 ", ociruntime.Base(s.User), " ", ociruntime.RangeSize)
		if name == "status" {
			want = fmt.Sprint("Uid: ", ociruntime.Base(s.User), " ")
		}
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(b)), " "), want) {
			t.Errorf("%s is %s, %v; want %q", name, b, err, want)
		}
	}
}

// Bytes and files outside of mounts are in the lease's volume: the program is refused more, and its end takes all away.
func TestAttackLayer(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	ref := ordinary(t, r, func(c *v1.Config) { c.User = "" })
	for _, dir := range []string{"/", "/tmp", "/store", "/home/ml"} {
		t.Run("bytes in "+dir, func(t *testing.T) {
			t.Parallel()
			s := in(t, r, ref, "write", dir)
			s.Limits.MemoryMiB = 64
			h := start(t, r, s)
			if e := wait(t, r, h); e.Reason != runtime.ReasonDisk || e.Code != 1 {
				t.Errorf("%+v\n%s", e, output(t, h, runtime.Stderr))
			}
			if err := r.Destroy(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			at := filepath.Dir(s.Layer)
			if err := volume.Release(at); err != nil {
				t.Fatal(err)
			}
			left, err := os.ReadDir(at)
			table, failed := os.ReadFile("/proc/self/mountinfo")
			if errors.Join(err, failed) != nil || len(left) != 0 || strings.Contains(string(table), at) {
				t.Errorf("%v is left, or a mount: %v", left, errors.Join(err, failed))
			}
		})
	}
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		s := in(t, r, ref, "starve", "/tmp")
		s.Limits.MemoryMiB = 256
		got := strings.TrimSpace(run(t, r, s))
		if files, err := strconv.Atoi(got); err != nil || int64(files) < volume.Files(32<<20)-64 || int64(files) > volume.Files(32<<20)+64 {
			t.Errorf("%s files of %d", got, volume.Files(32<<20))
		}
	})
	t.Run("files of the engine", func(t *testing.T) {
		t.Parallel()
		h := start(t, r, in(t, r, ref, "sleep"))
		info, err := r.engine.ContainerInspect(t.Context(), engine.ContainerName(h.Dir))
		if err != nil {
			t.Fatal(err)
		}
		if code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/probe", "write", "/"}}); err != nil || code != 1 {
			t.Errorf("code %d, %v", code, err)
		}
		if used, err := disk.Measure([]string{info.GraphDriver.Data["UpperDir"]}, 1<<40); err != nil || used.Bytes > 1<<20 {
			t.Errorf("%+v in the engine's layer, %v", used, err)
		}
	})
}

// Two leases have different ranges: neither uses up what the kernel gives to each user, nor has access to the other's files.
func TestAttackOtherRange(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	ref := ordinary(t, r, func(c *v1.Config) { c.User = "" })
	first, second := in(t, r, ref, "hoard"), in(t, r, ref, "hoard")
	all := firstNumber(t, r, start(t, r, first))
	if other := firstNumber(t, r, start(t, r, second)); other != all || all == 0 {
		t.Errorf("one has %d instances of inotify, the other %d", all, other)
	}
	var us unix.Stat_t
	if err := unix.Stat(first.Layer, &us); err != nil || us.Mode&0o777 != 0o700 || us.Uid == uint32(ociruntime.Base(second.User)) {
		t.Errorf("the layer is %d's, mode %o, %v", us.Uid, us.Mode, err)
	}
	// A layer is for one range, and for one container.
	second = in(t, r, ref, "sleep")
	second.Layer = first.Layer
	if _, err := r.Start(t.Context(), second); err == nil || !strings.Contains(err.Error(), "content") {
		t.Errorf("a layer of another: %v", err)
	}
}

// firstNumber is the first that a program prints.
func firstNumber(t *testing.T, r *Runtime, h runtime.Handle) (n int) {
	t.Helper()
	log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := fmt.Fscan(log, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A member of a cluster has its network and no power over it, though it is root of its container.
func TestAttackNetworkAsRoot(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	for user, caps := range map[string]string{
		"":   "has CapPrm:\t00000000a80425fb\nhas CapEff:\t00000000a80425fb\nhas CapBnd:\t00000000a80425fb\n",
		"ml": "has CapBnd:\t00000000a80425fb\n",
	} {
		t.Run("user "+user, func(t *testing.T) {
			t.Parallel()
			s := node(t, ordinary(t, r, func(c *v1.Config) { c.User = user }), 0, "net")
			s.User, s.Limits.DiskMiB = nextUser(), 32
			withLayer(t, r, &s)
			want := strings.Replace(sandboxOf0, "2 routes\n", "2 routes\n"+caps, 1)
			if got := run(t, r, s); got != want {
				t.Errorf("it finds\n%swant\n%s", got, want)
			}
		})
	}
}

// Where a layer would have no bound, nothing starts; the place that names one is nobody else's.
func TestAttackLayersPlace(t *testing.T) {
	t.Parallel()
	r := layers(t, nil)
	ref := ordinary(t, r, nil)
	s := spec(t, ref, "sleep")
	s.Layer = filepath.Join(t.TempDir(), "layer")
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrBadMount) {
		t.Errorf("a layer outside of a volume: %v", err)
	}
	s = in(t, r, ref, "sleep")
	s.Mounts = []runtime.Mount{{Host: t.TempDir(), Guest: ociruntime.LayerPath}}
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("a mount at its place: %v", err)
	}
	s.Mounts = []runtime.Mount{{Host: filepath.Join(s.Layer, "upper"), Guest: "/out"}}
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("a mount of the layer: %v", err)
	}
	bad := push(t, lab, "place", func(c *v1.ConfigFile) { c.Config.Volumes = map[string]struct{}{ociruntime.LayerPath: {}} })
	if err := r.Pull(t.Context(), bad, nil, nil); !errors.Is(err, runtime.ErrBadImage) {
		t.Errorf("a volume at its place: %v", err)
	}
}

// An OCI runtime of the name that gives no user namespace is found out, and containers are as they are without it.
func TestRuntimeWithoutLayers(t *testing.T) {
	t.Parallel()
	needEngine(t)
	config := filepath.Join(t.TempDir(), "daemon.json")
	if err := os.WriteFile(config, []byte(`{"runtimes": {"starling": {"path": "runc"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, ownEngine(t, "--config-file", config), nil)
	if r.KeepsLayers() {
		t.Error("containers are given layers that they do not have")
	}
	s := probe(t, ordinary(t, r, nil), "pwd")
	if err := r.volumes.None(); err == nil {
		withLayer(t, r, &s)
	}
	s.WorkDir = "/"
	if got := run(t, r, s); got != "/\n" {
		t.Errorf("it says %q", got)
	}
}
