package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// Tests that need an engine start one of their own, in a network namespace of its own, from the machine's packages.

var (
	shared    *testengine.Engine // of all tests but those that end one
	layered   *testengine.Engine // knows package ociruntime; of the first test that needs it, see layers
	lab       *testengine.Registry
	guestBin  string // the conformance program, static
	guardBin  string
	probeBin  string // the program that misbehaves, static
	noEngine  string // why there is none
	bin       string // directory of the programs
	testCount atomic.Int64
)

func TestMain(m *testing.M) {
	agent.Main()
	ociruntime.Main()
	guard.Main()
	if task := os.Getenv(peerEnv); task != "" {
		peerMain(task)
	}
	os.Exit(func() int {
		noEngine = setUp()
		defer tearDown()
		return m.Run()
	}())
}

// setUp starts the shared engine, or says why not.
func setUp() string {
	if os.Getenv("STARLING_DOCKER") != "1" {
		return "tests of the container engine run with STARLING_DOCKER=1, as make test sets it"
	}
	if err := testengine.Available(); err != nil {
		return err.Error()
	}
	dir, err := os.MkdirTemp("", "sdt")
	if err != nil {
		panic(err)
	}
	bin = dir
	guestBin, guardBin, probeBin = filepath.Join(dir, "guest"), filepath.Join(dir, "guard"), filepath.Join(dir, "probe")
	for out, pkg := range map[string]string{guestBin: "../runtimetest/guest/cmd", guardBin: "../../../cmd/starling-guard", probeBin: "./probe"} {
		if err := testengine.Build(out, pkg); err != nil {
			panic(err)
		}
	}
	// Hooks stand for NVIDIA's: this engine believes that it can hand out GPUs.
	hooks := filepath.Join(dir, "hooks")
	if err := errors.Join(os.Mkdir(hooks, 0o755), os.WriteFile(filepath.Join(hooks, "nvidia-container-runtime-hook"), []byte(fakeHook), 0o755)); err != nil {
		panic(err)
	}
	config := filepath.Join(dir, "daemon.json")
	if err := os.WriteFile(config, []byte(daemonConfig), 0o600); err != nil {
		panic(err)
	}
	if shared, err = testengine.Start(context.Background(), testengine.Options{Args: []string{"--config-file", config}, Env: []string{"PATH=" + hooks + ":" + os.Getenv("PATH")}}); err != nil {
		panic(err)
	}
	if lab, err = testengine.NewRegistry(); err != nil {
		panic(err)
	}
	return ""
}

// daemonConfig has the shared engine know runtimes, whether or not they are installed.
//
// Debian's gVisor of 2022 does not tell the root network namespace of newer kernels from others, so it has no network of its own here.
const daemonConfig = `{"runtimes": {
	"runsc": {"path": "runsc", "runtimeArgs": ["--host-uds=open", "--network=host"]},
	"runsc-shut": {"path": "runsc", "runtimeArgs": ["--network=host"]},
	"other-runc": {"path": "runc"}
}}`

// fakeHook does what NVIDIA's hook does with a device that is not there; it reads the container's configuration.
const fakeHook = `#!/bin/sh
read -r state
bundle=$(printf %s "$state" | sed 's/.*"bundle":"\([^"]*\)".*/\1/')
if grep -q 'NVIDIA_VISIBLE_DEVICES=[^"]*GPU-unknown' "$bundle/config.json"; then
	echo 'nvidia-container-cli: device error: GPU-unknown: unknown device' >&2
	exit 1
fi
`

func tearDown() {
	if lab != nil {
		_ = lab.Close()
	}
	for _, e := range []*testengine.Engine{shared, layered} {
		if e == nil {
			continue
		}
		if err := e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the engine:", err)
		}
	}
	if bin != "" {
		_ = os.RemoveAll(bin)
	}
}

// needEngine skips where there is none.
func needEngine(t testing.TB) {
	t.Helper()
	if noEngine != "" {
		t.Skip(noEngine)
	}
}

// ownEngine starts one for this test alone, which it may end.
func ownEngine(t testing.TB, args ...string) *testengine.Engine {
	t.Helper()
	needEngine(t)
	e, err := testengine.Start(t.Context(), testengine.Options{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// restart runs a killed engine again.
func restart(t *testing.T, e *testengine.Engine) {
	t.Helper()
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// newRuntime is a peer of its own on an engine.
func newRuntime(t testing.TB, e *testengine.Engine, change func(*Config)) *Runtime {
	t.Helper()
	needEngine(t)
	cfg := Config{Peer: fmt.Sprintf("test-%d-%d", os.Getpid(), testCount.Add(1)), Host: e.Host(), Guard: guardBin, Grace: time.Minute, Registries: lab.Addrs()}
	if change != nil {
		change(&cfg)
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// spec is one of the conformance program.
func spec(t testing.TB, image string, args ...string) runtime.Spec {
	t.Helper()
	return runtime.Spec{ID: "test", Image: image, Args: args, Dir: filepath.Join(t.TempDir(), "run"), Limits: runtime.Limits{MemoryMiB: 128}}
}

func start(t testing.TB, r *Runtime, s runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = r.Destroy(ctx, h)
	})
	return h
}

func wait(t testing.TB, r *Runtime, h runtime.Handle) runtime.Exit {
	t.Helper()
	e, err := r.Wait(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func output(t testing.TB, h runtime.Handle, s runtime.Stream) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.Dir, rundir.LogFile(s)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run wants a clean end and gives the output.
func run(t testing.TB, r *Runtime, s runtime.Spec) string {
	t.Helper()
	h := start(t, r, s)
	if e := wait(t, r, h); !e.OK() {
		t.Fatalf("%v: %+v\n%s", s.Args, e, output(t, h, runtime.Stderr))
	}
	return output(t, h, runtime.Stdout)
}

// push makes an image of the conformance program and says what it is called.
func push(t testing.TB, l *testengine.Registry, repo string, change func(*v1.ConfigFile), more ...testengine.File) string {
	t.Helper()
	files := append([]testengine.File{{Path: "/guest", From: guestBin}, {Path: "/data/"}, {Path: "/bin/"}, {Path: "/bin/tool", From: guestBin}, {Path: "/probe", From: probeBin}}, more...)
	ref, err := l.Push(repo, change, files...)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// pulled is pushed and on the engine.
func pulled(t testing.TB, r *Runtime, repo string, change func(*v1.ConfigFile), more ...testengine.File) string {
	t.Helper()
	ref := push(t, lab, repo, change, more...)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	return ref
}

// guardOf is the process id of an execution's guard.
func guardOf(t testing.TB, r *Runtime, h runtime.Handle) int {
	t.Helper()
	e, err := r.keeper.find(h)
	if err != nil {
		t.Fatal(err)
	}
	return e.state.Guard
}
