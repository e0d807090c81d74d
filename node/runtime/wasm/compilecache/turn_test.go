package compilecache

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// turnFile returns the file of the one turn in dir.
func turnFile(t *testing.T, dir string) string {
	t.Helper()
	turns, err := filepath.Glob(filepath.Join(dir, "*"+turnSuffix))
	if err != nil || len(turns) != 1 {
		t.Fatalf("turns: %v, %v", turns, err)
	}
	return turns[0]
}

// Of many that want to compile a program at once one does, and the others wait for it for as long as it is alive.
func TestTurns(t *testing.T) {
	t.Parallel()
	dir, code := t.TempDir(), []byte("program")
	takeTurn(dir, code, turnPatience)(false)
	path := turnFile(t, dir)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	alive := time.Now().Add(time.Hour)
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), os.Chtimes(path, alive, alive)); err != nil {
		t.Fatal(err)
	}
	var compiled atomic.Bool
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			takeTurn(dir, code, time.Millisecond)(true)
			if !compiled.Load() {
				t.Error("it did not wait")
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // so that a wrong one returns before
	compiled.Store(true)
	if _, err := f.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	f.Close()
	wg.Wait()
	if b, err := os.ReadFile(path); err != nil || len(b) != 1 {
		t.Errorf("compiled %d times, %v", len(b), err)
	}
}

// If the one that compiles ends without a result, another one takes its place, and again only one.
func TestTurnAfterDeath(t *testing.T) {
	t.Parallel()
	dir, code := t.TempDir(), []byte("program")
	done := takeTurn(dir, code, turnPatience)
	path := turnFile(t, dir)
	var wg sync.WaitGroup
	var at, most atomic.Int64
	for range 20 {
		wg.Go(func() {
			end := takeTurn(dir, code, time.Hour)
			if f, err := os.Stat(path); err == nil && f.Size() == 0 { // it compiles
				most.Store(max(most.Load(), at.Add(1)))
				time.Sleep(time.Millisecond)
				at.Add(-1)
			}
			end(true)
		})
	}
	done(false)
	wg.Wait()
	if b, err := os.ReadFile(path); err != nil || len(b) != 1 || most.Load() != 1 {
		t.Errorf("compiled %d times, %d at once, %v", len(b), most.Load(), err)
	}
}

// A process that stands still is not waited for, and one that compiles shows that it is alive.
func TestTurnOfPaused(t *testing.T) {
	t.Parallel()
	dir, code := t.TempDir(), []byte("program")
	done := takeTurn(dir, code, turnPatience)
	path := turnFile(t, dir)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	for { // the next sign of life
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.ModTime().After(long.Add(time.Minute)) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	done(false)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // nobody shows signs of life
		t.Fatal(err)
	}
	takeTurn(dir, code, 50*time.Millisecond)(true) // returns
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("it took the other's turn: %d, %v", info.Size(), err)
	}
}
