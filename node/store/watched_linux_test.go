package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/starling-network/starling/node/store"
)

// failing is a store whose writes fail with an error, if one is set.
type failing struct {
	store.Store
	err atomic.Pointer[error]
}

func (f *failing) Write(ctx context.Context, puts ...store.Put) error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Store.Write(ctx, puts...)
}

// A store that fails is out of order until a write succeeds, and is tried again if nobody writes. Refused records say
// nothing of the disk.
func TestWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &failing{Store: store.NewMemory()}
		w := store.Watch(f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		set := func(err error) { f.err.Store(&err) }
		write := func(want error) {
			t.Helper()
			if err := w.Write(t.Context(), put("k", "v")); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		write(nil)
		for _, err := range []error{store.ErrRecord, store.ErrClosed} {
			set(err)
			write(err)
			if p := w.Health(); p != nil {
				t.Errorf("%v: %+v", err, p)
			}
		}
		for err, remedy := range map[error]string{store.ErrFull: "free some space", store.ErrBroken: "restart the peer"} {
			set(err)
			write(err)
			if p := w.Health(); p == nil || !strings.Contains(p.Problem, err.Error()) || !strings.Contains(p.Remedy, remedy) {
				t.Errorf("%v: %+v", err, p)
			}
			time.Sleep(time.Minute)
			if w.Health() == nil {
				t.Errorf("%v: in order while writes fail", err)
			}
			f.err.Store(nil)
			time.Sleep(time.Minute)
			if p := w.Health(); p != nil {
				t.Errorf("after %v: %+v", err, p)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		problems, err := testutil.CollectAndLint(w)
		if err != nil || len(problems) > 0 || testutil.CollectAndCount(w) != 2 {
			t.Errorf("metrics: %v, %v", problems, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if _, err := w.Get(t.Context(), "kind", "k"); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a watched store that is closed closed its store: %v", err)
		}
	})
}

// A journal on a disk that is really full says so, and that it has room again.
func TestWatchedFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("needs a small file system, and mounting one failed: %v (TestWatched covers the error)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := store.Watch(openAt(t, filepath.Join(dir, "journal.db")))
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	large := put("large", strings.Repeat("x", 1<<20))
	if err := w.Write(t.Context(), large); !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v, want %v", err, store.ErrFull)
	}
	if p := w.Health(); p == nil || !strings.Contains(p.Remedy, "free some space") {
		t.Errorf("%+v", p)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), put("small", "x")); err != nil || w.Health() != nil {
		t.Errorf("%v, %+v", err, w.Health())
	}
}
