package wasm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/runtime/wasm/canonical"
)

func TestMain(m *testing.M) {
	ChildMain()
	if task := os.Getenv(peerEnv); task != "" {
		peerMain(task)
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the conformance program and one compile cache, made once for all tests.
var built struct {
	once         sync.Once
	dir, program string
	err          error
}

func program(t testing.TB) (module, cache string) {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "starling-wasm-test-"); built.err != nil {
			return
		}
		built.program = filepath.Join(built.dir, "guest.wasm")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", built.program, "../runtimetest/guest/cmd")
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building guest: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.program, filepath.Join(built.dir, "cache")
}

func newRuntime(t testing.TB, grace time.Duration) *Runtime {
	t.Helper()
	_, cache := program(t)
	r, err := New(Config{CacheDir: cache, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	module, _ := program(t)
	good, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		r := newRuntime(t, time.Minute)
		return runtimetest.Subject{
			Runtime: r,
			Restart: func(t *testing.T) runtime.Runtime {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = newRuntime(t, time.Minute)
				return r
			},
			Program: module,
			Bad: map[string]string{
				"missing":         filepath.Join(t.TempDir(), "none"),
				"a directory":     t.TempDir(),
				"empty":           write(t, "empty", nil),
				"text":            write(t, "text", []byte("#!/bin/sh\n")),
				"cut short":       write(t, "cut", good[:len(good)/2]),
				"invalid":         write(t, "invalid", append([]byte("\x00asm\x01\x00\x00\x00"), 0xff, 0xff, 0xff)),
				"no start":        write(t, "empty.wasm", []byte("\x00asm\x01\x00\x00\x00")),
				"foreign imports": write(t, "imports", foreignImports),
				"too much memory": write(t, "memory", muchMemory),
			},
			Deterministic: true,
		}
	})
}

// Modules by hand: header, then sections as id, length, content.
var (
	header = "\x00asm\x01\x00\x00\x00"
	// (import "env" "f" (func)) (func (export "_start"))
	foreignImports = []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x02\x09\x01\x03env\x01f\x00\x00" + "\x03\x02\x01\x00" +
		"\x07\x0a\x01\x06_start\x00\x01" + "\x0a\x04\x01\x02\x00\x0b")
	// (memory 4096) (func (export "_start")): 256 MiB, which is over the limit of the conformance test
	muchMemory = []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x05\x04\x01\x00\x80\x20" +
		"\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x04\x01\x02\x00\x0b")
	// (func (export "_start"))
	tiny = []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x04\x01\x02\x00\x0b")
	// (func (export "_start") unreachable)
	trapping = []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x05\x01\x03\x00\x00\x0b")
	// (func (export "_start") (loop br 0)): computes without any host call at all
	spinning = []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x0a\x01\x06_start\x00\x00" + "\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b")
)

func start(t testing.TB, r *Runtime, s runtime.Spec) runtime.Handle {
	t.Helper()
	if s.ID == "" {
		s.ID = "test"
	}
	if s.Dir == "" {
		s.Dir = filepath.Join(t.TempDir(), "run")
	}
	h, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wait(t testing.TB, r *Runtime, h runtime.Handle) runtime.Exit {
	t.Helper()
	e, err := r.Wait(t.Context(), h)
	if err != nil && !errors.Is(err, runtime.ErrClosed) {
		t.Fatal(err)
	}
	return e
}

func TestCheckModule(t *testing.T) {
	t.Parallel()
	r, err := New(Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(t.TempDir(), "module")
	for content, ok := range map[string]bool{canonical.Magic: true, canonical.Magic + "rest": true, "": false, "\x00asm": false, "#!/bin/sh\n": false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.CheckModule(path); (err == nil) != ok || err != nil && !errors.Is(err, runtime.ErrBadModule) {
			t.Errorf("%q: %v", content, err)
		}
	}
}
