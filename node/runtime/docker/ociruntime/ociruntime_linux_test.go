package ociruntime

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

func TestMain(m *testing.M) {
	Main()
	if dir := os.Getenv(stageEnv); dir != "" {
		stageMain(dir)
	}
	os.Exit(m.Run())
}

// Ranges of all users lie apart from each other, and between those that others on a machine have.
func TestRanges(t *testing.T) {
	t.Parallel()
	const directories, foreign = 2_000_200_000, 2_147_352_576
	if Base(0) <= directories || Base(runtime.MaxUser)+RangeSize > foreign {
		t.Errorf("ranges are from %d to %d, want them between %d and %d",
			Base(0), Base(runtime.MaxUser)+RangeSize, directories, foreign)
	}
	for _, user := range []uint32{0, 1, 77, runtime.MaxUser} {
		if base := Base(user); !isBase(uint32(base)) || isBase(uint32(base+1)) {
			t.Errorf("user %d: %d is not taken for the first of a range, or the next is", user, base)
		}
	}
	for _, user := range []uint32{0, 1000, FirstBase - RangeSize, uint32(Base(runtime.MaxUser + 1)), 1<<32 - RangeSize} {
		if isBase(user) {
			t.Errorf("%d is taken for the first of a range", user)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]command{
		"--root /r --log /l/log.json --log-format json create --bundle /b --pid-file /p id": {creates: true, bundle: "/b", log: "/l/log.json"},
		"--root /r start id": {bundle: "."},
		"run -b /b id":       {creates: true, bundle: "/b"},
		"create id":          {creates: true, bundle: "."},
		"create --bundle":    {creates: true},
		"--version":          {bundle: "."},
		"":                   {bundle: "."},
	} {
		want.args = strings.Fields(line)
		if got := parse(want.args); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}

func TestOverlayAt(t *testing.T) {
	t.Parallel()
	const other = "30 1 0:30 / /d/overlay2/other/merged rw - overlay overlay rw,lowerdir=/x,upperdir=/y,workdir=/z\n"
	for name, test := range map[string]struct {
		line string
		want []string
	}{
		"absolute": {"31 1 0:31 / /d/overlay2/id/merged rw,relatime shared:9 - overlay overlay rw,lowerdir=/d/l/A:/d/l/B,upperdir=/d/id/diff,workdir=/w",
			[]string{"/d/id/diff", "/d/l/A", "/d/l/B"}},
		"relative, as of many layers": {"31 1 0:31 / /d/overlay2/id/merged rw - overlay overlay rw,lowerdir=l/A:l/B,upperdir=id/diff,workdir=id/work",
			[]string{"/d/overlay2/id/diff", "/d/overlay2/l/A", "/d/overlay2/l/B"}},
		"one option for each": {"31 1 0:31 / /d/overlay2/id/merged rw - overlay overlay rw,lowerdir+=/A,lowerdir+=/B,upperdir=/U", []string{"/U", "/A", "/B"}},
		"read-only":           {"31 1 0:31 / /d/overlay2/id/merged ro - overlay overlay ro,lowerdir=/A:/B", []string{"/A", "/B"}},
		"another mount on it": {"31 1 0:31 / /d/overlay2/id/merged ro - overlay overlay ro,lowerdir=/A\n32 1 0:31 / /d/overlay2/id/merged ro - overlay overlay ro,lowerdir=/B",
			[]string{"/B"}},
		"not an overlay":      {"31 1 0:31 / /d/overlay2/id/merged rw - ext4 /dev/sda rw", nil},
		"an unusual name":     {`31 1 0:31 / /d/overlay2/id/merged rw - overlay overlay ro,lowerdir=/A\134:B`, nil},
		"a table of nonsense": {"1 2\n- - -\n\n - overlay", nil},
	} {
		got, err := overlayAt(other+test.line, "/d/overlay2/id/merged")
		if !slices.Equal(got, test.want) || (err != nil) != (test.want == nil) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

const engineConfig = `{"ociVersion": "1.0.2", "future": {"kept": 1},
	"root": {"path": "/d/merged", "readonly": true, "more": 2},
	"process": {"cwd": "/", "rlimits": [{"type": "RLIMIT_CORE", "hard": 0, "soft": 0}, {"type": "RLIMIT_NPROC", "hard": 2, "soft": 1}]},
	"mounts": [
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm"},
		{"destination": "/run", "type": "tmpfs", "source": "tmpfs"},
		{"destination": "/run/cache", "type": "tmpfs", "source": "tmpfs"},
		{"destination": "/run/secrets", "type": "tmpfs", "source": "tmpfs"},
		{"destination": "/data", "type": "tmpfs", "source": "tmpfs"},
		{"destination": "/run/starling", "type": "bind", "source": "/c", "options": ["rbind", "ro"]},
		{"destination": "/etc/hosts", "type": "bind", "source": "/e/hosts", "options": ["rbind", "ro"]},
		{"destination": "/etc/resolv.conf", "type": "bind", "source": "/e/resolv.conf", "options": ["rbind"]},
		{"destination": "/etc/passwd", "type": "bind", "source": "/e/passwd", "options": ["rbind", "ro"]},
		{"destination": "/run/starling/layer", "type": "bind", "source": "/layer", "options": ["rbind", "ro"]}],
	"linux": {"resources": {"pids": {"limit": 3}}, "mountLabel": "",
		"sysctl": {"net.ipv4.ping_group_range": "0 2147483647", "kernel.msgmax": "1"},
		"namespaces": [{"type": "mount"}, {"type": "network"}]}}`

// The changes are those that are meant, and nothing else of a configuration is lost.
func TestConfig(t *testing.T) {
	t.Parallel()
	c, err := decodeConfig([]byte(engineConfig))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.takeLayer(); got != "/layer" {
		t.Errorf("the layer is %q", got)
	}
	if got := c.takeLayer(); got != "" {
		t.Errorf("a second layer is %q", got)
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	c.keepVolumes()
	if got, want := c.takeFiles(), map[string]string{"/etc/hosts": "/e/hosts", "/etc/resolv.conf": "/e/resolv.conf"}; !maps.Equal(got, want) {
		t.Errorf("its own files are %q, want %q", got, want)
	}
	if core, ok := c.takeCore(); !ok || core != (rlimit{Type: "RLIMIT_CORE"}) {
		t.Errorf("the limit of core files is %+v, %v", core, ok)
	}
	if err := c.enter("/mnt/users", FirstBase, "/mnt/root"); err != nil {
		t.Fatal(err)
	}
	b, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	const changed = `{"ociVersion": "1.0.2", "future": {"kept": 1},
		"root": {"path": "/mnt/root", "readonly": false, "more": 2},
		"process": {"cwd": "/", "rlimits": [{"type": "RLIMIT_NPROC", "hard": 2, "soft": 1}]},
		"mounts": [
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev/shm", "type": "tmpfs", "source": "shm"},
			{"destination": "/run/secrets", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/run/starling", "type": "bind", "source": "/c", "options": ["rbind", "ro"]},
			{"destination": "/etc/passwd", "type": "bind", "source": "/e/passwd", "options": ["rbind", "ro"]}],
		"linux": {"resources": {"pids": {"limit": 3}}, "mountLabel": "",
			"sysctl": {"net.ipv4.ping_group_range": "0 65535", "kernel.msgmax": "1"},
			"namespaces": [{"type": "mount"}, {"type": "network"}, {"type": "user", "path": "/mnt/users"}],
			"uidMappings": [{"containerID": 0, "hostID": 2000224256, "size": 65536}],
			"gidMappings": [{"containerID": 0, "hostID": 2000224256, "size": 65536}]}}`
	if json.Unmarshal(b, &got) != nil || json.Unmarshal([]byte(changed), &want) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %s\nwant %s", b, changed)
	}
	c.mounts = append(c.mounts, mount{Destination: runtime.OverlayDir, Type: "bind"}, mount{Destination: "/etc/hosts", Type: "bind"})
	if got := c.takeFiles(); len(got) > 0 {
		t.Errorf("of a member of a cluster %q are taken", got)
	}
	if c.takeNetwork() != "" {
		t.Error("a network of its own is taken for another's")
	}
	c.namespaces[1].Path = "/proc/1/ns/net"
	if got := c.takeNetwork(); got != "/proc/1/ns/net" || len(c.namespaces) != 2 || c.sysctl["kernel.msgmax"] != "1" || len(c.sysctl) != 1 {
		t.Errorf("another's network is %q, then %+v, %v", got, c.namespaces, c.sysctl)
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"a relative root":        {`"/d/merged"`, `"merged"`},
		"no root":                {`"root"`, `"boot"`},
		"a number for a root":    {`"/d/merged"`, `1`},
		"its own user namespace": {`{"type": "mount"}`, `{"type": "user"}`},
		"a label":                {`"mountLabel": ""`, `"mountLabel": "system_u:object_r:x:s0:c1,c2"`},
		"no section for Linux":   {`"linux"`, `"windows"`},
		"mounts of another form": {`"mounts": [`, `"mounts": [1, `},
		"half of it":             {`"ociVersion"`, `{`},
	} {
		c, err := decodeConfig([]byte(strings.Replace(engineConfig, change[0], change[1], 1)))
		if err == nil {
			err = c.check()
		}
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A layer is a directory that the peer made, and nothing else.
func TestOpenLayer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to give a directory to another user")
	}
	dir := t.TempDir()
	base := Base(5)
	made := func(name string, mode os.FileMode, uid, gid int) string {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(at, uid, gid); err != nil {
			t.Fatal(err)
		}
		return at
	}
	good := made("good", 0o700, base, base)
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	full := made("full", 0o700, base, base)
	for _, err := range []error{os.Symlink(good, link), os.WriteFile(file, nil, 0o700), os.Chown(file, base, base), os.Mkdir(filepath.Join(full, "upper"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string]string{
		link: "", file: "", filepath.Join(dir, "none"): "", full: "content",
		made("root", 0o700, 0, 0): "owner", made("user", 0o700, 1000, 1000): "owner", made("inside", 0o700, base+1, base+1): "owner",
		made("group", 0o700, base, 0): "owner", made("open", 0o755, base, base): "mode",
		made("above", 0o700, Base(runtime.MaxUser+1), Base(runtime.MaxUser+1)): "owner",
	} {
		if l, err := openLayer(at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want an error with %q", at, l, err, want)
		}
	}
	l, err := openLayer(good)
	if err != nil {
		t.Fatal(err)
	}
	defer l.dir.Close()
	image := made("image", 0o711, 3, 70_000)
	if err := l.fill(image); err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(good, "upper"), &s); err != nil || s.Uid != uint32(base+3) || s.Gid != uint32(base) || s.Mode&0o7777 != 0o711 {
		t.Errorf("the upper directory is %d:%d %o, %v", s.Uid, s.Gid, s.Mode, err)
	}
}
