package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

const testImage = "registry.example/acme/train@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// boxes is a Fake that runs images: each is the program of its repository's last element.
type boxes struct {
	*runtimetest.Fake
	dir   string
	pull  func(ctx context.Context, auth *runtime.RegistryAuth, progress func(done, total int64)) error
	specs []runtime.Spec

	volumes bool // whether it has any
}

func (b *boxes) HasImage(context.Context, string) bool { return false }

func (b *boxes) Pull(ctx context.Context, _ string, auth *runtime.RegistryAuth, progress func(done, total int64)) error {
	return b.pull(ctx, auth, progress)
}

func (b *boxes) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	b.specs = append(b.specs, s)
	name, _, _ := strings.Cut(s.Image, "@")
	s.Module = filepath.Join(b.dir, "module")
	if err := os.WriteFile(s.Module, runtimetest.FakeModule(name[strings.LastIndex(name, "/")+1:]), 0o644); err != nil {
		return runtime.Handle{}, err
	}
	s.Image, s.Entrypoint, s.WorkDir, s.GPUs, s.Network = "", nil, "", nil, ""
	return b.Fake.Start(ctx, s)
}

var testKey = sign.NewPrivate([32]byte{9})

// newBoxes makes an executor whose one runtime is boxes.
func newBoxes(t *testing.T, programs map[string]guest.Program) (*executor, *boxes, func(market.LeaseID, *nodepb.Workload) (*execution, error)) {
	t.Helper()
	x, _, _ := newTestExecutor(t)
	b := &boxes{Fake: runtimetest.NewFake("docker", programs), dir: t.TempDir(), pull: func(context.Context, *runtime.RegistryAuth, func(int64, int64)) error { return nil }}
	x.runtimes = map[string]runtime.Runtime{"docker": b}
	x.retain = time.Hour
	x.unseal = func(box []byte, l market.LeaseID) ([]byte, error) {
		return sealed.Open(testKey, protocol.LeaseSecrets("test", l), box)
	}
	return x, b, func(l market.LeaseID, w *nodepb.Workload) (*execution, error) {
		w.Runtime, w.Image = "docker", testImage
		return x.start(t.Context(), request{lease: l, seq: 1, buyer: testBuyer, limits: limits, work: w})
	}
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
		x, b, start := newBoxes(t, map[string]guest.Program{"train": show})
		x.devices = func(units []market.UnitID) ([]string, []string, error) {
			return []string{"GPU-1"}, []string{"H100"}, nil
		}
		var opened runtime.RegistryAuth
		b.pull = func(_ context.Context, auth *runtime.RegistryAuth, progress func(int64, int64)) error {
			opened = *auth
			for i := range 100 {
				progress(int64(i), 100)
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		l := market.LeaseID{1}
		plain, err := proto.Marshal(&nodepb.Secrets{Files: map[string][]byte{"key": []byte("hush-file")}, Env: map[string]string{"TOKEN": "hush-env"}, RegistryUsername: "ada", RegistryPassword: "hush-password"})
		if err != nil {
			t.Fatal(err)
		}
		box, err := sealed.Seal(testKey.Key(), protocol.LeaseSecrets("test", l), plain)
		if err != nil {
			t.Fatal(err)
		}
		e, err := start(l, &nodepb.Workload{Sealed: box, Entrypoint: []string{"/train"}, WorkDir: "/work"})
		if err != nil {
			t.Fatal(err)
		}
		told, last := 0, uint64(0)
		for s, _, wake := e.snapshot(); !s.State.Ended(); s, _, wake = e.snapshot() {
			if s.PulledBytes > last {
				told, last = told+1, s.PulledBytes
			}
			<-wake
		}
		s, _, _ := e.snapshot()
		if s.State != nodepb.ExecState_EXEC_STATE_EXITED || told < 5 || told > 25 || s.PullTotal != 100 || len(s.Devices) != 1 || s.StartedMillis == 0 {
			t.Errorf("told %d times; %v", told, s)
		}
		if opened.Username != "ada" || opened.Password != "hush-password" {
			t.Errorf("the registry was given %+v", opened)
		}
		spec := b.specs[0]
		if string(spec.Secrets["key"]) != "hush-file" || spec.SecretEnv["TOKEN"] != "hush-env" || spec.GPUs[0] != "GPU-1" || spec.Env[EnvDevices] != "H100" || spec.WorkDir != "/work" || spec.Image != testImage {
			t.Errorf("started as %+v", spec)
		}
		if err := x.store.List(t.Context(), kindExecution, "", func(_ string, v []byte) error {
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
		if _, err := start(market.LeaseID{2}, &nodepb.Workload{Sealed: box}); !errors.Is(err, workload.ErrWorkload) || !strings.Contains(err.Error(), "not sealed to this provider for this lease") {
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
		"no such image": {&runtime.Failure{Class: runtime.ErrBadImage, Of: testImage, Advice: "its registry does not have it", Cause: errors.New("manifest unknown")},
			0, protocol.ReasonImage, testImage + ": image cannot be run: its registry does not have it"},
		"no program":        {fmt.Errorf("%w: no such file", runtime.ErrNoProgram), 0, protocol.ReasonProgram, "program of the image cannot be started: no such file"},
		"wrong credentials": {runtime.ErrCredentials, 0, protocol.ReasonCredentials, "refused the credentials"},
		"no registry":       {runtime.ErrRegistry, 0, protocol.ReasonStart, "cannot be reached"},
		"too slow":          {nil, time.Hour, protocol.ReasonStart, "longer than the 1m0s it was given"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x, b, start := newBoxes(t, nil)
				b.pull = func(ctx context.Context, _ *runtime.RegistryAuth, _ func(int64, int64)) error {
					select {
					case <-time.After(c.wait):
						return c.err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				e, err := start(market.LeaseID{1}, &nodepb.Workload{PullMillis: 60_000})
				if err != nil {
					t.Fatal(err)
				}
				if err := x.idle(t.Context(), market.LeaseID{1}); err != nil {
					t.Fatal(err)
				}
				if s, _, _ := e.snapshot(); s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.Reason != c.reason || !strings.Contains(s.Message, c.message) {
					t.Errorf("%v", s)
				}
			})
		})
	}
}

// What an engine, a registry or a file system says goes to the operator, and to no buyer.
func TestAttackErrorsTellWhatIsInside(t *testing.T) {
	t.Parallel()
	const inside = "dial tcp 10.0.0.5:22: SSH-2.0-OpenSSH_9.6p1 /home/operator/.starling"
	raw := errors.New(inside)
	for _, err := range []error{
		raw, fmt.Errorf("%w: %w", runtime.ErrBadImage, raw), fmt.Errorf("%w: %w", runtime.ErrRegistry, raw), fmt.Errorf("%w: %w", runtime.ErrCredentials, raw),
		fmt.Errorf("%w: %w", runtime.ErrEngine, raw), fmt.Errorf("%w: %w", runtime.ErrNoRoom, raw), fmt.Errorf("%w: %w", runtime.ErrDevice, raw),
		fmt.Errorf("%w: %w", runtime.ErrBadMount, raw), fmt.Errorf("%w: %w", runtime.ErrExists, raw), fmt.Errorf("fetching: %w: %w", stream.ErrUnreachable, raw),
		fmt.Errorf("starting: %w", &runtime.SpecError{Field: "Dir", Reason: inside}),
		&runtime.Failure{Class: runtime.ErrRegistry, Advice: "check the image's name", Cause: raw},
	} {
		text := told(err, notStarted)
		for _, secret := range []string{"10.0.0.5", "SSH", "operator"} {
			if text == "" || strings.Contains(text, secret) {
				t.Errorf("a buyer is told %q of %v", text, err)
			}
		}
	}
}

// What is kept goes after its time, and before that when it takes too much: the oldest first, and never what is needed.
func TestRetain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, _, start := newBoxes(t, map[string]guest.Program{"train": func(p guest.Process) int {
			_ = guest.WriteFile(p, "/out/result", []byte(strings.Repeat("x", 5000)+environ(p, "WHO")))
			return 0
		}})
		dropped := map[string]int{}
		x.drop = func(c cid.Cid) { dropped[c.String()]++ }
		p := &Provider{cfg: Config{Log: x.log}, exec: x, sales: map[market.LeaseID]*sale{}, stuck: map[market.LeaseID]time.Time{}}
		outputs := map[byte]string{}
		for i := byte(1); i <= 6; i++ {
			l := market.LeaseID{i}
			e, err := start(l, &nodepb.Workload{Outputs: []string{"/out"}, Env: map[string]string{"WHO": fmt.Sprint(i % 3)}})
			if err != nil {
				t.Fatal(err)
			}
			if err := x.idle(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			s, _, _ := e.snapshot()
			c, err := workload.CID(s.Outputs[0].Blob)
			if err != nil {
				t.Fatal(err)
			}
			outputs[i] = c.String()
			p.cfg.RetainBytes = e.rec.Kept*4 + e.rec.Kept/2
			if _, err := os.Stat(filepath.Join(x.stage(e).Dir, "disk")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the program's files are still there: %v", err)
			}
			time.Sleep(time.Minute)
		}
		p.sweep(t.Context())
		left := map[byte]bool{}
		for _, l := range x.leases() {
			left[l[0]] = true
		}
		if want := (map[byte]bool{3: true, 4: true, 5: true, 6: true}); !maps.Equal(left, want) {
			t.Errorf("left are %v", left)
		}
		for i := range left {
			if dropped[outputs[i]] > 0 {
				t.Errorf("an output of lease %d, which is kept, was dropped with another's", i)
			}
		}
		time.Sleep(58 * time.Minute)
		p.sweep(t.Context())
		if n := len(x.leases()); n == 0 || n >= len(left) {
			t.Errorf("after most of an hour %d leases are left", n)
		}
		time.Sleep(5 * time.Minute)
		p.sweep(t.Context())
		if n := len(x.leases()); n != 0 || len(dropped) != 3 {
			t.Errorf("after an hour %d leases are left, %d outputs dropped", n, len(dropped))
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
		"http":    {&nodepb.HealthCheck{Check: &nodepb.HealthCheck_Http{Http: &nodepb.HTTPGet{Port: 80, Path: "/"}}}, "503", time.Minute},
		"command": {&nodepb.HealthCheck{Check: &nodepb.HealthCheck_Command{Command: &nodepb.Command{Args: []string{"probe"}}}}, "exit code 3: it looks pale", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x, _, start := newBoxes(t, programs)
				c.check.IntervalMillis, c.check.TimeoutMillis, c.check.Retries, c.check.StartMillis = 2000, 1000, 3, 90_000
				e, err := start(market.LeaseID{1}, &nodepb.Workload{Health: c.check, Outputs: []string{"/out"}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				await := func(want nodepb.Health) *nodepb.Execution {
					t.Helper()
					for {
						s, _, wake := e.snapshot()
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
				sick := filepath.Join(x.stage(e).Dir, "disk", "out", "sick")
				if err := os.WriteFile(sick, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
				s := await(nodepb.Health_HEALTH_UNHEALTHY)
				if took := time.Since(began); took < 4*time.Second || took > 8*time.Second || !strings.Contains(s.HealthMessage, c.says) {
					t.Errorf("unhealthy after %v: %q", took, s.HealthMessage)
				}
				if err := os.Remove(sick); err != nil {
					t.Fatal(err)
				}
				await(nodepb.Health_HEALTH_HEALTHY)
				// Paused it cannot answer, which is not its fault.
				if err := x.setPaused(t.Context(), e, true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if s, _, _ := e.snapshot(); s.Health != nodepb.Health_HEALTH_HEALTHY || !s.Paused {
					t.Errorf("while paused: %v", s)
				}
				x.stopLease(t.Context(), market.LeaseID{1}, 0)
				if err := x.idle(t.Context(), market.LeaseID{1}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// mute is a runtime without the abilities that others have.
type mute struct{ runtime.Runtime }

// A runtime that cannot do what is asked is said so, and a pause that fails leaves nothing in the journal.
func TestCannot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, w, _ := newTestExecutor(t)
		x.runtimes["wasm"] = mute{x.runtimes["wasm"]}
		e, err := x.start(t.Context(), request{lease: market.LeaseID{1}, seq: 1, buyer: testBuyer, limits: limits, work: w})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, h, _ := e.snapshot()
		refuse := func(*nodepb.LiveReply) (*stream.Conn, error) { t.Error("taken"); return nil, io.EOF }
		for what, err := range map[string]error{
			"cannot pause":     x.setPaused(t.Context(), e, true),
			"use cp or logs":   x.attach(t.Context(), e, *h, &nodepb.LiveRequest_Attach{Args: []string{"x"}}, refuse),
			"no ports to conn": x.forward(t.Context(), e, *h, 80, refuse),
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v does not say %q", err, what)
			}
		}
		if s, _, _ := e.snapshot(); s.Paused {
			t.Error("it is taken for paused")
		}
		x.stopLease(t.Context(), market.LeaseID{1}, time.Second)
	})
}
