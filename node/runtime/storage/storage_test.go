package storage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
)

var quiet = slog.New(slog.DiscardHandler)

func specIn(t testing.TB) runtime.Spec {
	t.Helper()
	return runtime.Spec{ID: "v", Dir: filepath.Join(t.TempDir(), "run"), Limits: runtime.Limits{DiskMiB: 8}}
}

func start(t testing.TB, r *Runtime, s runtime.Spec) runtime.Handle {
	t.Helper()
	h, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Whatever happens in whatever order, restarts of the peer too, the directory is there while the volume runs and gone
// after its end, and it is never removed under a holder.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "volume-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := runtime.Spec{ID: "v", Dir: filepath.Join(dir, "run"), Limits: runtime.Limits{DiskMiB: 1}}
		r := New(Config{Unbounded: true, Log: quiet})
		h, err := r.Start(context.Background(), s)
		if err != nil {
			rt.Fatal(err)
		}
		data, ended := filepath.Join(s.Dir, dataDir), false
		var leaves []func()
		stop := func(want bool) {
			ctx, cancel := context.WithTimeout(context.Background(), map[bool]time.Duration{true: time.Minute, false: time.Millisecond}[want])
			defer cancel()
			if err := r.Stop(ctx, h, time.Hour); (err == nil) != want {
				rt.Fatalf("stopped with %d holders: %v", len(leaves), err)
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"hold", "leave", "stop", "restart"}).Draw(rt, "step") {
			case "hold":
				_, leave := r.Hold(h)
				leaves = append(leaves, leave)
			case "leave":
				if n := len(leaves); n > 0 {
					leaves[n-1]()
					leaves = leaves[:n-1]
				}
			case "stop":
				free := ended || len(leaves) == 0
				stop(free)
				ended = free
			case "restart":
				_ = r.Close()
				r, leaves = New(Config{Unbounded: true, Log: quiet}), nil
				if err := r.Recover(context.Background(), h); err != nil {
					rt.Fatal(err)
				}
			}
			if exists(data) == ended {
				rt.Fatalf("the directory exists: %v, the volume has ended: %v", !ended, ended)
			}
			if got, err := r.Directory(h); ended != errors.Is(err, runtime.ErrEnded) || !ended && got != data {
				rt.Fatalf("directory %q, %v", got, err)
			}
		}
		for _, leave := range leaves {
			leave()
		}
		if err := r.Destroy(context.Background(), h); err != nil || exists(s.Dir) {
			rt.Fatalf("destroyed: %v", err)
		}
		if err := r.Destroy(context.Background(), h); err != nil {
			rt.Fatalf("destroyed again: %v", err)
		}
	})
}

// A volume with a file system of its own keeps its content over a restart of the machine, and leaves nothing mounted.
func TestBoundedVolume(t *testing.T) {
	t.Parallel()
	if err := volume.Try(t.Context(), t.TempDir(), os.Getpid()); err != nil {
		t.Skip(err)
	}
	s := specIn(t)
	r := New(Config{Log: quiet})
	h := start(t, r, s)
	t.Cleanup(func() { _ = volume.Release(s.Dir) })
	data, image := filepath.Join(s.Dir, dataDir), filepath.Join(s.Dir, imageFile)
	if err := os.WriteFile(filepath.Join(data, "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "big"), make([]byte, 16<<20), 0o644); err == nil {
		t.Error("16 MiB were written to a volume of 8 MiB")
	}
	_ = r.Close()
	if err := volume.Release(s.Dir); err != nil { // as the end of the machine does
		t.Fatal(err)
	}
	r = New(Config{Log: quiet})
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(data, "f")); err != nil || string(b) != "text" {
		t.Errorf("after a restart: %q, %v", b, err)
	}
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if mounted, err := volume.Mounted(s.Dir); err != nil || len(mounted) > 0 || exists(image) || exists(data) {
		t.Errorf("after the end: mounted %v, %v", mounted, err)
	}
	if e, err := r.Wait(t.Context(), h); err != nil || !e.OK() {
		t.Errorf("the end: %+v, %v", e, err)
	}
}

// Handles and directories of others are refused.
func TestForeign(t *testing.T) {
	t.Parallel()
	r, s := New(Config{Unbounded: true, Log: quiet}), specIn(t)
	h := start(t, r, s)
	if _, err := r.Start(t.Context(), s); !errors.Is(err, runtime.ErrExists) {
		t.Errorf("a second volume in one directory: %v", err)
	}
	other := h
	other.Runtime = "wasm"
	if _, err := r.Directory(other); !errors.Is(err, runtime.ErrBadHandle) {
		t.Errorf("another runtime's handle: %v", err)
	}
	unknown := h
	unknown.Dir = filepath.Join(t.TempDir(), "none")
	if err := r.Recover(t.Context(), unknown); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("an unknown volume: %v", err)
	}
	if _, err := r.Wait(t.Context(), unknown); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("waiting for it: %v", err)
	}
	if st, err := r.Stats(t.Context(), h); err != nil || st != (runtime.Stats{}) {
		t.Errorf("usage: %+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, endedFile), make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(Config{Unbounded: true, Log: quiet}).Recover(t.Context(), h); err == nil {
		t.Error("a damaged end was read")
	}
}
