package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/disk"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/sandbox"
)

// probe is a spec of the program that misbehaves.
func probe(t testing.TB, image string, args ...string) runtime.Spec {
	s := spec(t, image, args...)
	s.Entrypoint = []string{"/probe"}
	return s
}

func TestNoPrivileges(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	status := run(t, r, spec(t, ref, "show", "/proc/self/status"))
	for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", fmt.Sprintf("Uid:\t%d\t", os.Getuid())} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	// Signals 32 and 33 are the C library's own: make starts everything with them ignored, and that is passed on.
	const library = 1<<31 | 1<<32
	_, ignored, _ := strings.Cut(status, "SigIgn:\t")
	if n, err := strconv.ParseUint(ignored[:min(16, len(ignored))], 16, 64); err != nil || n&^library != 0 {
		t.Errorf("it begins with ignored signals: %v in\n%s", err, status)
	}
	s := spec(t, ref, "escape", "/new", "/guest", "/etc/hosts", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/var/run/docker.sock", shared.Dir+"/sock")
	h := start(t, r, s)
	wait(t, r, h)
	for line := range strings.Lines(output(t, h, runtime.Stdout)) {
		if strings.HasPrefix(line, "wrote") || strings.Contains(line, "sock") {
			t.Errorf("it %s", line)
		}
	}
	got := run(t, r, probe(t, ref, "guard"))
	if got != "done\n" {
		t.Errorf("the guard can be had: %s", got)
	}
}

func TestLimitsOfTheContainer(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	s := spec(t, ref, "hello")
	s.Limits = runtime.Limits{MemoryMiB: 100, MilliCPU: 1500, Pids: 50}
	h := start(t, r, s)
	info, err := r.engine.ContainerInspect(t.Context(), engine.ContainerName(h.Dir))
	if err != nil && !engine.Absent(err) {
		t.Fatal(err)
	}
	if err == nil {
		c := info.HostConfig
		if c.Privileged || c.Memory != (100+sandbox.GuardMiB+sandbox.GaugeMiB)<<20 || c.MemorySwap != c.Memory || *c.PidsLimit != 50+sandbox.GuardPids || c.CPUQuota != 150_000 || c.CPUPeriod != 100_000 || !c.ReadonlyRootfs {
			t.Errorf("%+v", c)
		}
	}
	wait(t, r, h)
}

// What is hard on the machine: each ends as it should, and the engine and others go on.
func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	for name, test := range map[string]struct {
		args   []string
		limits runtime.Limits
		reason runtime.Reason
		code   int
	}{
		// On a busy machine the kernel frees what it took for refused forks seconds later.
		"forks without end":       {[]string{"forks"}, runtime.Limits{Pids: 64, MemoryMiB: 2048, WallTime: 3 * time.Second}, runtime.ReasonTimeout, runtime.CodeTimeout},
		"prints without end":      {[]string{"flood"}, runtime.Limits{LogMiB: 1, WallTime: 3 * time.Second}, runtime.ReasonTimeout, runtime.CodeTimeout},
		"fills its disk":          {[]string{"fill", "/out"}, runtime.Limits{DiskMiB: 16}, runtime.ReasonDisk, runtime.CodeKilled},
		"fills it without names":  {[]string{"hide", "/out"}, runtime.Limits{DiskMiB: 16}, runtime.ReasonDisk, runtime.CodeKilled},
		"fills it behind a door":  {[]string{"deny", "/out"}, runtime.Limits{DiskMiB: 16}, runtime.ReasonDisk, runtime.CodeKilled},
		"fills what is in memory": {[]string{"fill", "/tmp"}, runtime.Limits{MemoryMiB: 64}, runtime.ReasonOOM, 0},
		"crashes":                 {[]string{"crash"}, runtime.Limits{}, runtime.ReasonTrap, 128 + int(syscall.SIGSEGV)},
		"is nothing that can run": {[]string{"no such command"}, runtime.Limits{}, runtime.ReasonNone, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := probe(t, ref, test.args...)
			out := t.TempDir()
			s.Mounts = []runtime.Mount{{Host: out, Guest: "/out"}}
			s.Limits = test.limits
			h := start(t, r, s)
			e := wait(t, r, h)
			if e.Reason != test.reason || e.Code != test.code && test.code != 0 {
				t.Errorf("ended with %+v\n%.500s", e, output(t, h, runtime.Stderr))
			}
			if used, err := disk.Measure([]string{out}, 1<<40); err != nil || used.Bytes > 1<<30 {
				t.Errorf("%d bytes on the disk, %v", used, err)
			}
			if log := output(t, h, runtime.Stdout); test.args[0] == "flood" {
				if len(log) > 1<<20+200 || !strings.Contains(log[len(log)-200:], runtime.LogCutMarker) {
					t.Errorf("a log of %d bytes", len(log))
				}
				var m goruntime.MemStats
				goruntime.GC()
				goruntime.ReadMemStats(&m)
				if m.HeapAlloc > 1<<30 { // other tests have images in memory, and three seconds of this are more
					t.Errorf("the peer keeps %d MiB", m.HeapAlloc>>20)
				}
			}
		})
	}
}

// A fork bomb that has all the processes it may have, under a CPU limit: Linux lets them exit no faster than that limit,
// and its guard is one among them. Left to itself it takes minutes to end. It has an eighth of the usual processes, and so
// does not take the machine from other packages' tests.
func TestForkBombIsStopped(t *testing.T) {
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	const most = runtime.DefaultPids / 8
	bomb := func(t *testing.T, wall time.Duration) runtime.Handle {
		s := probe(t, ref, "forks")
		s.Limits = runtime.Limits{MemoryMiB: 2048, WallTime: wall, Pids: most}
		h := start(t, r, s)
		until(t, "the bomb has grown", func() bool { return processes(t, r, h) >= most })
		// It grows without the limit, for the test's sake.
		limit := container.UpdateConfig{Resources: container.Resources{CPUPeriod: 100_000, CPUQuota: 1_000}}
		if _, err := r.engine.ContainerUpdate(t.Context(), engine.ContainerName(h.Dir), limit); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, test := range map[string]struct {
		wall time.Duration
		want runtime.Reason
	}{
		"stopped":   {0, runtime.ReasonKilled},
		"wall time": {10 * time.Second, runtime.ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			h := bomb(t, test.wall)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if test.wall == 0 {
				if err := r.Stop(ctx, h, time.Second); err != nil {
					t.Fatal(err)
				}
			}
			if e, err := r.Wait(ctx, h); e.Reason != test.want || err != nil {
				t.Errorf("%+v, %v", e, err)
			}
			if err := r.Destroy(ctx, h); err != nil {
				t.Error(err)
			}
			if n := containers(t, r); n != 0 {
				t.Errorf("%d containers are left", n)
			}
		})
	}
}

// processes counts those of a container, as the engine does.
func processes(t *testing.T, r *Runtime, h runtime.Handle) uint64 {
	t.Helper()
	s, err := r.engine.ContainerStatsOneShot(t.Context(), engine.ContainerName(h.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(s.Body).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	return stats.PidsStats.Current
}

func TestTermIsSent(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	h := start(t, r, probe(t, pulled(t, r, "plain", nil), "term"))
	log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := io.ReadFull(log, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), h, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Code != 4 || e.Reason != runtime.ReasonNone {
		t.Errorf("%+v", e)
	}
}

func TestForbiddenMounts(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(shared.Dir, link); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{shared.Dir + "/sock", shared.Dir, shared.Dir + "/data", shared.Dir + "/data/containers", link, link + "/data", "/tmp", "/run", "/var/run",
		"/etc", "/proc", "/sys/fs", "/dev/shm", "/proc/self/root/etc"} {
		s := spec(t, ref, "hello")
		s.Mounts = []runtime.Mount{{Host: host, Guest: "/host"}}
		if strings.HasPrefix(s.Dir, host+"/") {
			s.Dir = "/srv/starling-test-never" // nothing comes to be there
		}
		if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrBadMount) {
			t.Errorf("%s: %v", host, err)
		}
		if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: its directory is still there", host)
		}
	}
	for _, guest := range []string{"/proc", "/sys/fs/cgroup", "/dev/shm", "/run", "/run/starling", "/run/secrets"} {
		s := spec(t, ref, "hello")
		s.Mounts = []runtime.Mount{{Host: t.TempDir(), Guest: guest}}
		if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrInvalidSpec) {
			t.Errorf("%s: %v", guest, err)
		}
	}
}

func TestSecretsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	value := fmt.Sprintf("hush-%d", time.Now().UnixNano())
	s := probe(t, pulled(t, r, "plain", nil), "sleep")
	s.Secrets = map[string][]byte{"key": []byte(value)}
	s.SecretEnv = map[string]string{"TOKEN": value}
	h := start(t, r, s)
	var out bytes.Buffer
	if code, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/guest", "show", runtime.SecretsDir + "/key"}, Stdout: &out}); err != nil || code != 0 || out.String() != value {
		t.Fatalf("%q, %d, %v", out.String(), code, err)
	}
	raw, err := h.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, inspected, err := r.engine.ContainerInspectWithRaw(t.Context(), engine.ContainerName(h.Dir), true)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte(value)) || bytes.Contains(inspected, []byte(value)) {
		t.Error("the handle or the engine shows it")
	}
	for _, root := range []string{shared.Dir, h.Dir} {
		if where := grep(t, root, value); where != "" {
			t.Errorf("it is in %s", where)
		}
	}
}

// grep looks for text in every file below a directory, of this file system alone.
func grep(t *testing.T, root, text string) (found string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(p, "/overlay2/") && filepath.Base(p) == "guest" {
			return nil // gone again
		}
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(text)) {
			found = p
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "gpu", func(c *v1.ConfigFile) {
		c.Config.Env = []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all", "CUDA=1", "NVIDIA_IMEX_CHANNELS=0"}
	})
	containerEnv := func(h runtime.Handle) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", guardOf(t, r, h)))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(b), "\x00", "\n")
	}
	s := spec(t, ref, "polite")
	s.GPUs = []string{"GPU-aaaa", "GPU-bbbb"}
	h := start(t, r, s)
	if env := containerEnv(h); !strings.Contains(env, "NVIDIA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb\n") || strings.Contains(env, "=all") || strings.Contains(env, "IMEX") || !strings.Contains(env, "NVIDIA_DRIVER_CAPABILITIES=compute,utility\n") {
		t.Errorf("the hook sees\n%s", env)
	}
	var out bytes.Buffer
	if _, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/guest", "environ"}, Stdout: &out}); err != nil || !strings.Contains(out.String(), "CUDA=1\n") || !strings.Contains(out.String(), "NVIDIA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb\n") {
		t.Errorf("the program sees %s, %v", out.String(), err)
	}
	h = start(t, r, spec(t, ref, "polite"))
	if env := containerEnv(h); !strings.Contains(env, "NVIDIA_VISIBLE_DEVICES=void\n") {
		t.Errorf("without a GPU the hook sees\n%s", env)
	}
	s = spec(t, ref, "hello")
	s.GPUs = []string{"GPU-unknown"}
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrDevice) || !strings.Contains(err.Error(), "GPU-unknown") {
		t.Errorf("unknown device: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	h := start(t, r, probe(t, pulled(t, r, "plain", nil), "sleep"))
	sizes := make(chan runtime.Size, 1)
	sizes <- runtime.Size{Rows: 24, Cols: 80}
	in, typed := io.Pipe()
	shown, out := io.Pipe()
	code := make(chan error, 1)
	go func() {
		n, err := r.Attach(t.Context(), h, runtime.Process{Args: []string{"/probe", "tty"}, TTY: true, Size: sizes, Stdin: in, Stdout: out})
		if n != 0 {
			err = fmt.Errorf("code %d, %w", n, err)
		}
		_ = out.Close()
		code <- err
	}()
	expect := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(shown, b); err != nil || string(b) != want {
			t.Fatalf("%q, %v; want %q", b, err, want)
		}
	}
	expect("24x80\r\n")
	sizes <- runtime.Size{Rows: 30, Cols: 100}
	expect("30x100\r\n")
	_, _ = io.WriteString(typed, "word\n")
	expect("word\r\nread word\r\n")
	if err := <-code; err != nil {
		t.Error(err)
	}

	// Giving up kills what was attached and nothing else.
	ctx, cancel := context.WithCancel(t.Context())
	in, _ = io.Pipe()
	shown, out = io.Pipe()
	go func() {
		_, err := r.Attach(ctx, h, runtime.Process{Args: []string{"/probe", "tty"}, TTY: true, Stdin: in, Stdout: out})
		code <- err
	}()
	expect("0x0\r\n")
	cancel()
	if err := <-code; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for { // until only the guard and the program are left
		top, err := r.engine.ContainerTop(t.Context(), engine.ContainerName(h.Dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(top.Processes) == 2 {
			return
		}
	}
}
