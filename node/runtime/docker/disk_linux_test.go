package docker

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
	"github.com/starling-network/starling/node/runtime/volume"
)

// onVolume gives a spec a writable mount that is in a volume.
func onVolume(t testing.TB, r *Runtime, s *runtime.Spec) (out string) {
	t.Helper()
	if err := r.volumes.None(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "disk")
	t.Cleanup(func() {
		if err := volume.Release(dir); err != nil {
			t.Error(err)
		}
	})
	if err := r.MakeVolume(t.Context(), dir, int64(s.Limits.WithDefaults().DiskMiB)<<20); err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Mounts = append(s.Mounts, runtime.Mount{Host: out, Guest: "/out"})
	return out
}

// starved is a program that makes its files costly to look through, has little of the processor, and then writes with many threads.
func starved(t testing.TB, ref string) runtime.Spec {
	s := probe(t, ref, "starve", "/out")
	s.Limits = runtime.Limits{DiskMiB: 100, MilliCPU: 500, MemoryMiB: 512, Pids: 1024}
	return s
}

func TestAttackDiskStarved(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := starved(t, pulled(t, r, "plain", nil))
	out := onVolume(t, r, &s)
	h := start(t, r, s)
	if e := wait(t, r, h); !e.OK() {
		t.Errorf("%+v\n%s", e, output(t, h, runtime.Stderr))
	}
	files, err := strconv.Atoi(strings.TrimSpace(output(t, h, runtime.Stdout)))
	if err != nil || int64(files) > volume.Files(100<<20)+64 {
		t.Errorf("%d files of %d, %v", files, volume.Files(100<<20), err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(out, &fs); err != nil || int64(fs.Blocks)*fs.Bsize > volume.Size(100<<20) || int64(fs.Bfree)*fs.Bsize > 10<<20 {
		t.Errorf("%d blocks of %d are free, %v", fs.Bfree, fs.Blocks, err)
	}
}

// Where there are no volumes, it is the peer that looks, and so the program cannot take from it the time to do so.
func TestAttackDiskStarvedMeasured(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := starved(t, pulled(t, r, "plain", nil))
	out := t.TempDir()
	s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
	h := start(t, r, s)
	if e := wait(t, r, h); e.Reason != runtime.ReasonDisk || e.Code != runtime.CodeKilled {
		t.Errorf("%+v\n%s", e, output(t, h, runtime.Stderr))
	}
	if used, err := disk.Measure([]string{out}, 1<<40); err != nil || used.Bytes > 4<<30 || used.Files > 60_000 {
		t.Errorf("%+v, %v", used, err)
	}
}

// A file system that is full of one's files has no room for another's only if they share it.
func TestAttackInodes(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	var hostFiles unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &hostFiles); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := probe(t, ref, "starve", "/out")
		s.Limits = runtime.Limits{DiskMiB: 16, MemoryMiB: 256}
		onVolume(t, r, &s)
		got := strings.TrimSpace(run(t, r, s))
		if files, err := strconv.Atoi(got); err != nil || int64(files) < volume.Files(16<<20)-16 || int64(files) > volume.Files(16<<20)+64 {
			t.Errorf("%s files of %d", got, volume.Files(16<<20))
		}
	}
}

// What is in a container beside its mounts is the image, which nobody may write, or memory.
func TestAttackFullLayer(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	for _, dir := range []string{"/", "/dev", "/dev/shm", "/dev/mqueue", "/run", "/run/starling", "/tmp", "/proc", "/sys"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			s := probe(t, ref, "fill", dir)
			s.Limits = runtime.Limits{MemoryMiB: 64, DiskMiB: 16}
			h := start(t, r, s)
			info, err := r.engine.ContainerInspect(t.Context(), engine.ContainerName(h.Dir))
			if e := wait(t, r, h); e.OK() || e.Reason != runtime.ReasonNone && e.Reason != runtime.ReasonOOM {
				t.Errorf("%+v", e)
			}
			if err != nil {
				return // it had ended already
			}
			if layer := info.GraphDriver.Data["UpperDir"]; layer != "" {
				if used, err := disk.Measure([]string{layer}, 1<<40); err == nil && used.Bytes > 1<<20 {
					t.Errorf("%+v in the container's layer", used)
				}
			}
		})
	}
}

// A loop of small writes that are waited for is bounded by the kernel, where the engine and the kernel can.
func TestAttackFsyncLoop(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := probe(t, pulled(t, r, "plain", nil), "fsync", "/out")
	s.Limits.DiskMiB = 16
	out := onVolume(t, r, &s)
	h := start(t, r, s)
	var own unix.Stat_t
	if err := unix.Stat(out, &own); err != nil {
		t.Fatal(err)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", guardOf(t, r, h)))
	if err != nil {
		t.Fatal(err)
	}
	var limit string
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, file := range []string{"/sys/fs/cgroup/blkio" + f[2] + "/blkio.throttle.write_iops_device", "/sys/fs/cgroup" + f[2] + "/io.max"} {
			if b, err := os.ReadFile(file); err == nil && (f[1] == "blkio" || f[1] == "") {
				limit += string(b)
			}
		}
	}
	if limit == "" {
		t.Skip("the kernel does not limit how often a device is written")
	}
	device := fmt.Sprintf("%d:%d ", unix.Major(own.Dev), unix.Minor(own.Dev))
	if !strings.Contains(limit, device) || !strings.Contains(limit, fmt.Sprint(sandbox.WriteIOPS)) {
		t.Errorf("limits are %q, want one of %d for %s", limit, sandbox.WriteIOPS, device)
	}
	log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for range 3 {
		if !lines.Scan() {
			t.Fatalf("it ended: %v, %s", lines.Err(), output(t, h, runtime.Stderr))
		}
		t.Logf("%s times in a second", lines.Text())
	}
}

// A program that fails for want of room is said to.
func TestFailsOnAFullVolume(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := probe(t, pulled(t, r, "plain", nil), "write", "/out")
	s.Limits.DiskMiB = 16
	onVolume(t, r, &s)
	if e := wait(t, r, start(t, r, s)); e.Reason != runtime.ReasonDisk || e.Code != 1 {
		t.Errorf("%+v", e)
	}
}

// A process of the peer is killed; the next has the same volume, whose mount belongs to no process.
func TestVolumeIsFoundAgain(t *testing.T) {
	t.Parallel()
	first := newRuntime(t, shared, nil)
	s := probe(t, pulled(t, first, "plain", nil), "sleep")
	s.Limits.DiskMiB = 16
	out := onVolume(t, first, &s)
	h := start(t, first, s)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next := newRuntime(t, shared, func(c *Config) { c.Peer = first.cfg.Peer })
	if err := next.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	var code int
	code, err := next.Attach(t.Context(), h, runtime.Process{Args: []string{"/probe", "fill", "/out"}})
	if err != nil || code == 0 {
		t.Errorf("%d, %v", code, err)
	}
	if err := next.Destroy(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t // Destroy leaves mounts alone: what is in them is not collected yet
	if err := unix.Statfs(out, &fs); err != nil || int64(fs.Bfree)*fs.Bsize > 2<<20 || int64(fs.Blocks)*fs.Bsize > volume.Size(16<<20) {
		t.Errorf("%d blocks of %d are free, %v", fs.Bfree, fs.Blocks, err)
	}
}

// An engine that does not see a volume would mount the directory below it: its guard starts nothing.
func TestVolumeThatTheEngineDoesNotSee(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	s := probe(t, pulled(t, r, "plain", nil), "sleep")
	s.Mounts = []runtime.Mount{{Host: t.TempDir(), Guest: "/out"}}
	img, err := r.images.Config(t.Context(), s.Image)
	if err != nil {
		t.Fatal(err)
	}
	var below unix.Statfs_t
	if err := unix.Statfs(s.Mounts[0].Host, &below); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		size guard.Volume
		want error
	}{
		"seen":     {guard.Volume{Blocks: below.Blocks, Files: below.Files}, nil},
		"not seen": {guard.Volume{Blocks: 16 << 8, Files: 1 << 10}, runtime.ErrNoVolume},
	} {
		s.Dir = filepath.Join(t.TempDir(), "run")
		owner, err := rundir.Prepare(s)
		if err != nil {
			t.Fatal(err)
		}
		e := r.keeper.newExecution(s.ID, s.Dir, owner)
		order, err := r.starter.order(s, img)
		if err != nil {
			t.Fatal(err)
		}
		mounts, _, err := r.sandbox.Mounts(s)
		if err != nil {
			t.Fatal(err)
		}
		order.Volume, e.state.Token = test.size, order.Token
		err = r.starter.begin(t.Context(), e, s, r.sandbox.Container(s, img), r.sandbox.Host(s, img, mounts), func() error { return nil })
		if err == nil {
			err = e.run(t.Context(), order)
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		e.disown()
		if err := r.engine.End(t.Context(), e.container); err != nil {
			t.Error(err)
		}
	}
}
