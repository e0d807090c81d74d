package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify/exclusive"
)

const testImage = "registry.example/acme/train@sha256:0000000000000000000000000000000000000000000000000000000000000000"

var (
	testKey    = sign.NewPrivate([32]byte{9})
	testDomain = sign.Domain{Network: "test", Chain: sign.Hash{1}}
)

// boxes is a Fake that runs images: each is the program of its repository's last element.
type boxes struct {
	*runtimetest.Fake
	dir  string
	pull func(ctx context.Context, auth *runtime.RegistryAuth, progress func(done, total int64)) error

	mu      sync.Mutex
	specs   []runtime.Spec
	volumes bool // whether it has any
	layers  bool // whether it keeps any
}

var _ runtime.Volumer = (*boxes)(nil)

func (b *boxes) HasImage(context.Context, string) bool { return false }

func (b *boxes) Pull(
	ctx context.Context, _ string, auth *runtime.RegistryAuth, progress func(done, total int64),
) error {
	if b.pull == nil {
		return nil
	}
	return b.pull(ctx, auth, progress)
}

func (b *boxes) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	b.mu.Lock()
	b.specs = append(b.specs, s)
	b.mu.Unlock()
	name, _, _ := strings.Cut(s.Image, "@")
	s.Module = filepath.Join(b.dir, "module")
	if err := os.WriteFile(s.Module, runtimetest.FakeModule(name[strings.LastIndex(name, "/")+1:]), 0o644); err != nil {
		return runtime.Handle{}, err
	}
	s.Image, s.Entrypoint, s.WorkDir, s.GPUs, s.Layer = "", nil, "", nil, ""
	return b.Fake.Start(ctx, s)
}

// MakeVolume makes volumes as the docker runtime does.
func (b *boxes) MakeVolume(ctx context.Context, dir string, bytes int64) error {
	if !b.volumes {
		return runtime.ErrNoVolume
	}
	return volume.Make(ctx, dir, bytes)
}

// KeepsLayers reports whether it does, as the docker runtime does.
func (b *boxes) KeepsLayers() bool { return b.layers }

// machine is Devices and Opener of a test.
type machine struct {
	mu      sync.Mutex
	names   []string
	evicted int
	sick    error
}

func (m *machine) Names([]market.UnitID) (ids, names []string, err error) {
	if len(m.names) == 0 {
		return nil, nil, nil
	}
	return []string{"GPU-1"}, m.names, nil
}

func (m *machine) Evict(context.Context, []market.UnitID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evicted++
	return nil
}

func (m *machine) Health(context.Context, []market.UnitID) (exclusive.Snapshot, error) {
	return exclusive.Snapshot{CPUs: 4, MemoryMiB: 1024, CPUModel: "a cpu", At: 5}, m.sick
}

func (m *machine) Open(box []byte, l market.LeaseID) ([]byte, error) {
	return sealed.Open(testKey, protocol.LeaseSecrets("test", l), box)
}

// noNetworks is the hook of networks of a test.
type noNetworks struct{}

func (noNetworks) Joins(context.Context, runtime.Runtime) error { return errors.New("no networks") }

// rig is a bench whose one runtime is boxes, with all hooks.
type rig struct {
	*executortest.Bench
	boxes   *boxes
	machine *machine
	hooks   hooks.Config
}

func newRig(t *testing.T, programs map[string]guest.Program) *rig {
	t.Helper()
	b := executortest.New(t)
	r := &rig{Bench: b, machine: &machine{}, boxes: &boxes{Fake: runtimetest.NewFake("docker", programs), dir: t.TempDir()}}
	b.Runtimes = map[string]runtime.Runtime{"docker": r.boxes, "wasm": runtimetest.NewFake("wasm", programs)}
	r.hooks = hooks.Config{
		Host: workload.Host{Runtimes: b.Runtimes, Secrets: true}, Opener: r.machine, Devices: r.machine, Blobs: b.Blobs,
		Files: b.Files, Store: b.Store, Domain: testDomain, Key: testKey, Retain: time.Hour, Log: b.Log,
	}
	b.Hooks = hooks.All(r.hooks, noNetworks{}, nil)
	b.Start()
	return r
}

func (r *rig) do(l market.LeaseID, w *nodepb.Workload) (*executor.Execution, error) {
	w.Runtime, w.Image = "docker", testImage
	return r.Do(l, 1, w)
}

func (r *rig) must(l market.LeaseID, w *nodepb.Workload) *executor.Execution {
	r.T.Helper()
	e, err := r.do(l, w)
	if err != nil {
		r.T.Fatal(err)
	}
	return e
}

func show(p guest.Process) int {
	b, err := guest.ReadFile(p, runtime.SecretsDir+"/key", 100)
	fmt.Fprintln(p.Stdout(), string(b), err, p.Environ())
	return 0
}

// An image is pulled with what opens its registry, its progress is seen, and it starts with secrets that the journal has
// only sealed.
func TestLaunchImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]guest.Program{"train": show})
		r.machine.names = []string{"H100"}
		var opened runtime.RegistryAuth
		r.boxes.pull = func(_ context.Context, auth *runtime.RegistryAuth, progress func(int64, int64)) error {
			opened = *auth
			for i := range 100 {
				progress(int64(i), 100)
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		l := market.LeaseID{1}
		plain, err := proto.Marshal(&nodepb.Secrets{
			Files: map[string][]byte{"key": []byte("hush-file")}, Env: map[string]string{"TOKEN": "hush-env"},
			RegistryUsername: "ada", RegistryPassword: "hush-password",
		})
		if err != nil {
			t.Fatal(err)
		}
		box, err := sealed.Seal(testKey.Key(), protocol.LeaseSecrets("test", l), plain)
		if err != nil {
			t.Fatal(err)
		}
		e := r.must(l, &nodepb.Workload{Sealed: box, Entrypoint: []string{"/train"}, WorkDir: "/work"})
		seen, last := 0, uint64(0)
		for s, _, wake := e.Snapshot(); !s.State.Ended(); s, _, wake = e.Snapshot() {
			if s.PulledBytes > last {
				seen, last = seen+1, s.PulledBytes
			}
			<-wake
		}
		s := r.Await(e)
		if s.State != nodepb.ExecState_EXEC_STATE_EXITED || seen < 5 || seen > 25 || s.PullTotal != 100 ||
			len(s.Devices) != 1 || s.StartedMillis == 0 || r.machine.evicted != 1 {
			t.Errorf("progress was seen %d times, %d evictions; %v", seen, r.machine.evicted, s)
		}
		if opened.Username != "ada" || opened.Password != "hush-password" {
			t.Errorf("the registry was given %+v", opened)
		}
		spec := r.boxes.specs[0]
		if string(spec.Secrets["key"]) != "hush-file" || spec.SecretEnv["TOKEN"] != "hush-env" ||
			spec.GPUs[0] != "GPU-1" || spec.Env[hooks.EnvDevices] != "H100" || spec.WorkDir != "/work" || spec.Image != testImage {
			t.Errorf("started as %+v", spec)
		}
		if err := r.Store.List(t.Context(), "execution", "", func(_ string, v []byte) error {
			if strings.Contains(string(v), "hush") {
				t.Errorf("the journal has a secret: %s", v)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if kept := time.Until(time.UnixMilli(int64(s.KeepUntilMillis))); kept < 59*time.Minute || kept > time.Hour {
			t.Errorf("kept for %v", kept)
		}
		// Sealed for another lease it opens nothing here.
		_, err = r.do(market.LeaseID{2}, &nodepb.Workload{Sealed: box})
		if !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "not sealed to this provider for this lease") {
			t.Errorf("another lease's secrets: %v", err)
		}
	})
}

func TestLaunchFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		wait    time.Duration
		reason  string
		message string
	}{
		"no such image": {&runtime.Failure{
			Class: runtime.ErrBadImage, Of: testImage, Advice: "not found in the registry", Cause: errors.New("unknown"),
		}, 0, protocol.ReasonImage, testImage + ": image cannot be run: not found in the registry"},
		"no program": {
			fmt.Errorf("%w: no such file", runtime.ErrNoProgram), 0, protocol.ReasonProgram,
			"program of the image cannot be started: no such file",
		},
		"wrong credentials": {runtime.ErrCredentials, 0, protocol.ReasonCredentials, "refused the credentials"},
		"no registry":       {runtime.ErrRegistry, 0, protocol.ReasonStart, "cannot be reached"},
		"too slow":          {nil, time.Hour, protocol.ReasonStart, "time limit of 1m0s exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.boxes.pull = func(ctx context.Context, _ *runtime.RegistryAuth, _ func(int64, int64)) error {
					select {
					case <-time.After(c.wait):
						return c.err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				s := r.Await(r.must(market.LeaseID{1}, &nodepb.Workload{PullMillis: 60_000}))
				if s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.Reason != c.reason || !strings.Contains(s.Message, c.message) {
					t.Errorf("%v", s)
				}
			})
		})
	}
}

// A seeded program that was asked to stop has no result, and another one has.
func TestStoppedReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]guest.Program{"train": executortest.Wait})
		for i, w := range []*nodepb.Workload{{}, {Seed: 7}} {
			l := market.LeaseID{byte(i)}
			w.Runtime, w.Module = "wasm", r.Module("train")
			e := r.Must(l, 1, w)
			synctest.Wait()
			r.End(l, time.Minute)
			s := r.Await(e)
			if killed := s.Reason == string(runtime.ReasonKilled); killed != (w.Seed != 0) {
				t.Errorf("seed %d: ended as %v", w.Seed, s)
			}
		}
	})
}

// Snapshots are signed at both ends, and a buyer's signature is journalled until the execution is forgotten.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]guest.Program{"train": executortest.Wait})
		l := market.LeaseID{1}
		e := r.must(l, &nodepb.Workload{})
		before := r.Running(e).Before
		if before == nil {
			t.Fatal("no snapshot before the start")
		}
		r.End(l, 0)
		s := r.Await(e)
		if s.After == nil || string(s.Before.Snapshot) != string(before.Snapshot) {
			t.Errorf("at the end there are %v and %v", s.Before, s.After)
		}
		snapshot, err := exclusive.UnmarshalSnapshot(s.After.Snapshot)
		if err != nil || snapshot.Lease != l || snapshot.Execution != 1 || snapshot.When != exclusive.After {
			t.Errorf("the second one is %+v, %v", snapshot, err)
		}
		sig, err := snapshot.Sign(testDomain, executortest.Owner)
		if err != nil {
			t.Fatal(err)
		}
		hash := sign.Sum(s.After.Snapshot)
		seen := r.hooks.Snapshots()
		if err := seen.Seen(t.Context(), e, executortest.Owner.Key(), hash[:], sig[:]); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{
			"an unknown snapshot":  seen.Seen(t.Context(), e, executortest.Owner.Key(), make([]byte, 32), sig[:]),
			"another's signature":  seen.Seen(t.Context(), e, testKey.Key(), hash[:], sig[:]),
			"a signature cut off":  seen.Seen(t.Context(), e, executortest.Owner.Key(), hash[:], sig[:9]),
			"a hash of wrong size": seen.Seen(t.Context(), e, executortest.Owner.Key(), hash[:9], sig[:]),
		} {
			if err == nil {
				t.Errorf("%s was taken", what)
			}
		}
		if n := r.records("seen"); n != 1 {
			t.Errorf("%d signatures in the journal", n)
		}
		if err := r.Forget(t.Context(), l); err != nil || r.records("seen") != 0 {
			t.Errorf("%d signatures of a forgotten execution: %v", r.records("seen"), err)
		}
		r.machine.sick = errors.New("the driver hangs")
		r.must(market.LeaseID{2}, &nodepb.Workload{})
		synctest.Wait()
		if s, h, _ := r.Under(market.LeaseID{2})[0].Snapshot(); h == nil || s.Before != nil {
			t.Errorf("without a working driver: %v", s)
		}
		r.End(market.LeaseID{2}, 0)
	})
}

func (r *rig) records(kind string) (n int) {
	r.T.Helper()
	if err := r.Store.List(context.Background(), kind, "", func(string, []byte) error { n++; return nil }); err != nil {
		r.T.Fatal(err)
	}
	return n
}

// A program that was paused is paused for the next process too.
func TestPauseSurvivesRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]guest.Program{"train": executortest.Wait})
		e := r.must(market.LeaseID{1}, &nodepb.Workload{})
		synctest.Wait()
		if err := executor.SetPaused(t.Context(), e, true); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		r.boxes.Fake = r.boxes.Fake.Restart()
		r.Start()
		synctest.Wait()
		e = r.Under(market.LeaseID{1})[0]
		_, h, _ := e.Snapshot()
		before, _ := r.boxes.Stats(t.Context(), *h)
		time.Sleep(time.Second)
		after, err := r.boxes.Stats(t.Context(), *h)
		if err != nil || before.CPUMillis != after.CPUMillis || !e.Paused() {
			t.Errorf("paused %t, and it used %d ms: %v", e.Paused(), after.CPUMillis-before.CPUMillis, err)
		}
		r.End(market.LeaseID{1}, 0)
	})
}

// overs is Leases in which every lease with executions is over.
type overs struct{ forgotten map[market.LeaseID]bool }

func (o overs) Over(executed []market.LeaseID) []market.LeaseID { return executed }
func (o overs) Forgotten(l market.LeaseID)                      { o.forgotten[l] = true }

// Retained files go after their time, and before that when they take too much: the oldest first, and never what is
// needed.
func TestRetain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]guest.Program{"train": func(p guest.Process) int {
			_ = guest.WriteFile(p, "/out/result", []byte(strings.Repeat("x", 5000)+environ(p, "WHO")))
			return 0
		}})
		o := overs{map[market.LeaseID]bool{}}
		sweeper := hooks.Sweeper{Executions: r, Leases: o, Retain: time.Hour, Log: r.Log}
		outputs := map[byte]string{}
		for i := byte(1); i <= 6; i++ {
			l := market.LeaseID{i}
			e := r.must(l, &nodepb.Workload{Outputs: []string{"/out"}, Env: map[string]string{"WHO": fmt.Sprint(i % 3)}})
			s := r.Await(e)
			c, err := workload.CID(s.Outputs[0].Blob)
			if err != nil {
				t.Fatal(err)
			}
			outputs[i] = c.String()
			if needed := hooks.Needed(r.All()); !needed[c] {
				t.Errorf("an output is not needed: %v", needed)
			}
			size := int64(s.Outputs[0].Blob.Size)
			sweeper.Bytes = size*4 + size/2
			synctest.Wait()
			if _, err := os.Stat(filepath.Join(e.Stage().Dir, "disk")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the program's files are still there: %v", err)
			}
			time.Sleep(time.Minute)
		}
		sweeper.Sweep(t.Context())
		left := map[byte]bool{}
		for _, l := range r.Leases() {
			left[l[0]] = true
		}
		if want := (map[byte]bool{3: true, 4: true, 5: true, 6: true}); !maps.Equal(left, want) {
			t.Errorf("left are %v", left)
		}
		dropped := map[string]int{}
		for c, n := range r.Files.Dropped() {
			dropped[c.String()] = n
		}
		for i := range left {
			if dropped[outputs[i]] > 0 {
				t.Errorf("an output of lease %d, which is kept, was dropped with another's", i)
			}
		}
		time.Sleep(58 * time.Minute)
		sweeper.Sweep(t.Context())
		if n := len(r.Leases()); n == 0 || n >= len(left) {
			t.Errorf("after most of an hour %d leases are left", n)
		}
		time.Sleep(5 * time.Minute)
		sweeper.Sweep(t.Context())
		if n := len(r.Leases()); n != 0 || len(r.Files.Dropped()) != 3 || len(o.forgotten) != 6 {
			t.Errorf("after an hour %d leases are left, %d outputs dropped", n, len(r.Files.Dropped()))
		}
	})
}

func environ(p guest.Process, name string) string {
	for _, e := range p.Environ() {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// sickly listens on port 80 and answers as the file /out/sick says; the first minute nobody listens.
func sickly(p guest.Process) int {
	for range 60_000 {
		p.Burn()
	}
	_ = p.Listen(80, func(c io.ReadWriteCloser) {
		status := "200 OK"
		if guest.Exists(p, "/out/sick") {
			status = "503 Service Unavailable"
		}
		buf := make([]byte, 1<<10)
		_, _ = c.Read(buf)
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
		_ = c.Close()
	})
	return 1
}

func TestHealth(t *testing.T) {
	t.Parallel()
	programs := map[string]guest.Program{
		"train": sickly,
		"probe": func(p guest.Process) int {
			if guest.Exists(p, "/out/sick") {
				fmt.Fprintln(p.Stderr(), "it looks", "pale")
				return 3
			}
			return 0
		},
	}
	for name, c := range map[string]struct {
		check *nodepb.HealthCheck
		says  string
		after time.Duration // until it is healthy first
	}{
		"http": {&nodepb.HealthCheck{
			Check: &nodepb.HealthCheck_Http{Http: &nodepb.HTTPGet{Port: 80, Path: "/"}},
		}, "503", time.Minute},
		"command": {&nodepb.HealthCheck{
			Check: &nodepb.HealthCheck_Command{Command: &nodepb.Command{Args: []string{"probe"}}},
		}, "exit code 3: it looks pale", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, programs)
				c.check.IntervalMillis, c.check.TimeoutMillis, c.check.Retries, c.check.StartMillis = 2000, 1000, 3, 90_000
				e := r.must(market.LeaseID{1}, &nodepb.Workload{Health: c.check, Outputs: []string{"/out"}})
				began := time.Now()
				await := func(want nodepb.Health) *nodepb.Execution {
					t.Helper()
					for {
						s, _, wake := e.Snapshot()
						if s.Health == want {
							return s
						}
						select {
						case <-wake:
						case <-time.After(5 * time.Minute):
							t.Fatalf("it does not become %v: %v", want, s)
						}
					}
				}
				await(nodepb.Health_HEALTH_STARTING)
				await(nodepb.Health_HEALTH_HEALTHY)
				if took := time.Since(began); took < c.after || took > c.after+5*time.Second {
					t.Errorf("healthy after %v", took)
				}
				sick := filepath.Join(e.Stage().Dir, "disk", "out", "sick")
				if err := os.WriteFile(sick, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
				s := await(nodepb.Health_HEALTH_UNHEALTHY)
				took := time.Since(began)
				if took < 4*time.Second || took > 8*time.Second || !strings.Contains(s.HealthMessage, c.says) {
					t.Errorf("unhealthy after %v: %q", took, s.HealthMessage)
				}
				if err := os.Remove(sick); err != nil {
					t.Fatal(err)
				}
				await(nodepb.Health_HEALTH_HEALTHY)
				// Paused it cannot answer, which is not its fault.
				if err := executor.SetPaused(t.Context(), e, true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if s, _, _ := e.Snapshot(); s.Health != nodepb.Health_HEALTH_HEALTHY || !s.Paused {
					t.Errorf("while paused: %v", s)
				}
				r.End(market.LeaseID{1}, 0)
			})
		})
	}
}

// A program's outputs are in a volume from before its inputs are laid out until they are stored. Whatever a peer that
// was killed has left mounted is gone after the start of the next, but for what goes on.
func TestAttackVolumesAreLeftMounted(t *testing.T) {
	t.Parallel()
	if err := volume.Try(t.Context(), t.TempDir(), os.Getpid()); errors.Is(err, volume.ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]guest.Program{"train": func(p guest.Process) int {
		for !guest.Exists(p, guest.StopFile) {
			p.Burn()
			time.Sleep(time.Millisecond)
		}
		if err := guest.WriteFile(p, "/out/result", []byte("x")); err != nil {
			return 1
		}
		return 0
	}})
	r.boxes.volumes, r.boxes.layers = true, true
	t.Cleanup(func() {
		if err := volume.Release(r.Dir); err != nil {
			t.Error(err)
		}
	})
	mounted := func(want ...string) {
		t.Helper()
		got, err := volume.Mounted(r.Dir)
		if err != nil || len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("mounted are %v, %v; want %v", got, err, want)
		}
	}
	l := market.LeaseID{1}
	e := r.must(l, &nodepb.Workload{Outputs: []string{"/out"}})
	r.Running(e)
	own := filepath.Join(e.Stage().Dir, "disk")
	mounted(own)
	if got := r.boxes.specs[0].Layer; filepath.Dir(filepath.Dir(filepath.Dir(got))) != own {
		t.Errorf("the layer is %s, want one in the volume %s", got, own)
	}

	// The peer dies, and others died before it: while they made the volume of an earlier attempt, and of an unknown lease.
	earlier := filepath.Join(filepath.Dir(e.Stage().Dir), "a7", "disk")
	for _, dir := range []string{earlier, filepath.Join(r.Dir, "0badcafe", "1", "a0", "disk")} {
		if err := volume.Make(t.Context(), dir, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	r.Stop()
	r.boxes.Fake = r.boxes.Fake.Restart()
	r.Start()
	mounted(own)
	r.End(l, time.Minute)
	if s := r.Await(r.Under(l)[0]); s.State != nodepb.ExecState_EXEC_STATE_EXITED || s.ExitCode != 0 || len(s.Outputs) != 1 {
		t.Errorf("ended as %v", s)
	}
	r.Wait() // the program's files are removed after its end is reported
	mounted()
	if err := r.Forget(t.Context(), l); err != nil {
		t.Error(err)
	}
}
