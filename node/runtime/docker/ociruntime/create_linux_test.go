package ociruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stageEnv is the directory of a test of a whole call, for the process that plays the engine.
const stageEnv = "STARLING_OCIRUNTIME_STAGE"

// fakeRunc prints its arguments, the configuration and the root that it would run, as it sees them.
const fakeRunc = `#!/bin/sh
echo "args $*"
while [ "$1" != --bundle ]; do shift; done
config=$2/config.json
root=$(sed 's/.*"root":{[^}]*"path":"\([^"]*\)".*/\1/' "$config")
for f in "$root" "$root/home" "$root/home/f" "$root/upper" "$root/run" "$root/run/app" "$root/etc" "$root/etc/hosts" "$root/etc/resolv.conf"; do
	stat -c "file %n %u %g %a" "$f" | sed "s|$root|root|"
done
echo x > "$root/new" && echo written
cat "$root/etc/hosts" "$root/etc/resolv.conf"
for f in $(sed 's/"source":"/\n/g' "$config" | sed 's/".*//' | grep ^/); do
	test -e "$f" && echo "source $f"
	touch "$f" 2>/dev/null && echo "can write $f"
done
cat "$config"
echo
ulimit -c
`

// playEngine makes a bundle in dir: an image in an overlay, a layer on another file system, and a configuration.
func playEngine(t *testing.T, dir string, edit func(config string) string) {
	t.Helper()
	for _, d := range []string{"overlay2/l/low/home", "overlay2/l/low/etc", "overlay2/l/low/run/app", "e", "overlay2/id/diff", "overlay2/id/work", "overlay2/id/merged", "disk", "control", "bin", "bundle"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	low := filepath.Join(dir, "overlay2/l/low")
	config := strings.NewReplacer(`"/e/`, `"`+dir+`/e/`, `"/d/merged"`, `"`+dir+`/overlay2/id/merged"`, `"/c"`, `"`+dir+`/control"`,
		`"/layer"`, `"`+dir+`/disk/layer"`).Replace(engineConfig)
	for _, err := range []error{
		os.WriteFile(filepath.Join(low, "home/f"), []byte("f"), 0o600),
		os.WriteFile(filepath.Join(dir, "overlay2/id/diff/upper"), nil, 0o644),
		os.Chown(filepath.Join(low, "home"), 7, 8), os.Chmod(filepath.Join(low, "home"), 0o700),
		os.Chown(filepath.Join(low, "home/f"), 7, 8),
		os.Chown(filepath.Join(low, "run/app"), 7, 8),
		os.WriteFile(filepath.Join(low, "etc/hosts"), []byte("the image's\n"), 0o600),
		os.Symlink("../run/none/resolv.conf", filepath.Join(low, "etc/resolv.conf")),
		os.WriteFile(filepath.Join(dir, "e/hosts"), []byte("the engine's hosts\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "e/resolv.conf"), []byte("the engine's resolver\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "e/passwd"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "bin/runc"), []byte(fakeRunc), 0o755),
		os.WriteFile(filepath.Join(dir, "bundle/config.json"), []byte(edit(config)), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stageMain mounts the image and the volume in a mount namespace of this process, and becomes the OCI runtime.
func stageMain(dir string) {
	base := Base(3)
	layer := filepath.Join(dir, "disk/layer")
	options := fmt.Sprintf("lowerdir=%s/overlay2/l/low,upperdir=%s/overlay2/id/diff,workdir=%s/overlay2/id/work", dir, dir, dir)
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("overlay", filepath.Join(dir, "overlay2/id/merged"), "overlay", 0, options),
		unix.Mount("tmpfs", filepath.Join(dir, "disk"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"),
		os.Mkdir(layer, 0o700), os.Chown(layer, base, base),
		os.Unsetenv(stageEnv),
		os.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH")),
	)
	if err == nil {
		self, args := "/proc/self/exe", []string{"starling", Subcommand, "--log", filepath.Join(dir, "log.json"),
			"create", "--bundle", filepath.Join(dir, "bundle"), "id"}
		err = syscall.Exec(self, args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "playing the engine:", err)
	os.Exit(3)
}

// create calls the OCI runtime with a configuration, and returns the output of runc.
func create(t *testing.T, edit func(config string) string) (dir, out string, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to mount")
	}
	// Overlays are not in each other: the directory for temporary files may be in one.
	dir = t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skipf("no overlay can be made in %s, %v", dir, err)
	}
	playEngine(t, dir, edit)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	said, err := cmd.CombinedOutput()
	return dir, string(said), err
}

// A container with a layer has the files of its image as its own, and writes into the layer alone.
func TestCreate(t *testing.T) {
	t.Parallel()
	dir, out, err := create(t, func(c string) string { return c })
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	base := Base(3)
	lines := strings.Split(out, "\n")
	for _, want := range []string{
		"args --log " + dir + "/log.json create --bundle " + dir + "/bundle id",
		fmt.Sprintf("file root %d %d 755", base, base),
		fmt.Sprintf("file root/home %d %d 700", base+7, base+8),
		fmt.Sprintf("file root/home/f %d %d 600", base+7, base+8),
		fmt.Sprintf("file root/upper %d %d 644", base, base),
		fmt.Sprintf("file root/run %d %d 755", base, base),
		fmt.Sprintf("file root/run/app %d %d 755", base+7, base+8),
		fmt.Sprintf("file root/etc %d %d 755", base, base),
		fmt.Sprintf("file root/etc/hosts %d %d 644", base, base),
		fmt.Sprintf("file root/etc/resolv.conf %d %d 644", base, base),
		"written", "the engine's hosts", "the engine's resolver", "0",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The container's own /run can be written, and nothing of the engine or the peer.
	if strings.Count(out, "can write") != 1 || !strings.Contains(out, `{"destination":"/run","type":"bind","source":"/mnt/run"`) ||
		!strings.Contains(out, "can write /mnt/run\n") || strings.Contains(out, dir+"/control") || strings.Contains(out, dir+"/e") {
		t.Errorf("the control directory is not shown by a read-only mount:\n%s", out)
	}
	for _, name := range []string{"overlay2/id/diff/new", "overlay2/l/low/new"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is written", name)
		}
	}
	for _, left := range []string{"/mnt/root", "/media/root", filepath.Join(dir, "overlay2/id/merged/home")} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is mounted outside of the container", left)
		}
	}
}

// A configuration without a layer is runc's alone.
func TestCreateWithoutLayer(t *testing.T) {
	t.Parallel()
	var given string
	_, out, err := create(t, func(c string) string {
		given = strings.Replace(c, LayerPath, "/layer", 1)
		return given
	})
	if err != nil || !strings.Contains(out, given) {
		t.Errorf("%v, got\n%s\nwant it to have\n%s", err, out, given)
	}
}

// A failure is reported where the engine reads those of runc, and runc does not run.
func TestCreateFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, new string
		want     string
	}{
		"no layer there":       {"disk/layer", "disk/none", "layer "},
		"a layer of others":    {"disk/layer", "control", "owner"},
		"a root without image": {"id/merged", "id/diff", "not an overlay"},
		"a mount of nothing":   {`/control"`, `/none"`, "cloning mount"},
		"half a configuration": {`"ociVersion"`, `"`, "decoding configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, out, err := create(t, func(c string) string { return strings.Replace(c, test.old, test.new, 1) })
			if err == nil || strings.Contains(out, "args ") || !strings.Contains(out, test.want) {
				t.Errorf("%v, %s; want an error with %q", err, out, test.want)
			}
			var line struct{ Level, Msg string }
			b, err := os.ReadFile(filepath.Join(dir, "log.json"))
			if err == nil {
				err = json.Unmarshal(b, &line)
			}
			if err != nil || line.Level != "error" || !strings.Contains(line.Msg, test.want) {
				t.Errorf("the log has %s, %v", b, err)
			}
		})
	}
}

// A process without the range of a user is not taken for one that has it.
func TestConfirm(t *testing.T) {
	t.Parallel()
	if err := Confirm(os.Getpid(), 3); err == nil || !strings.Contains(err.Error(), fmt.Sprint(Base(3))) {
		t.Errorf("a process of this machine: %v", err)
	}
	if err := Confirm(1<<30, 3); err == nil {
		t.Error("a process that is not there is accepted")
	}
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to make a user namespace")
	}
	ids := func(user uint32, size int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{HostID: Base(user), Size: size}}
	}
	for name, test := range map[string]struct {
		users, groups []syscall.SysProcIDMap
		ok            bool
	}{
		"its range":      {ids(3, RangeSize), ids(3, RangeSize), true},
		"another range":  {ids(4, RangeSize), ids(3, RangeSize), false},
		"another group":  {ids(3, RangeSize), ids(4, RangeSize), false},
		"a larger range": {ids(3, RangeSize+1), ids(3, RangeSize), false},
		"more ranges":    {append(ids(3, RangeSize), syscall.SysProcIDMap{ContainerID: RangeSize, Size: 1}), ids(3, RangeSize), false},
	} {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: test.users, GidMappings: test.groups,
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := Confirm(cmd.Process.Pid, 3); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// The stage is none of the places that the engine or the container use.
func TestEmptyPlace(t *testing.T) {
	t.Parallel()
	free, err := emptyPlace(nil)
	if err != nil {
		t.Skip(err)
	}
	for _, used := range []string{free, free + "/docker/run"} {
		if got, err := emptyPlace([]string{"create", used}); got == free {
			t.Errorf("%s is given although %s is used, %v", got, used, err)
		}
	}
	if got, err := emptyPlace([]string{free + "-other", "/var/lib/docker"}); got != free {
		t.Errorf("%s, %v; want %s", got, err, free)
	}
	if got, err := emptyPlace(places); err == nil {
		t.Errorf("%s is given although all are used", got)
	}
}
