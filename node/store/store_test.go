package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/store/storetest"
)

func openAt(t testing.TB, path string) *store.SQLite {
	t.Helper()
	s, err := store.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(key, value string) store.Put {
	return store.Put{Kind: "k", Key: key, Value: []byte(value)}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t,
		func(t testing.TB) store.Store {
			return openAt(t, filepath.Join(t.TempDir(), "a b?%20#.db"))
		},
		func(t testing.TB, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openAt(t, s.(*store.SQLite).Path())
		})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t,
		func(testing.TB) store.Store { return store.NewMemory() },
		func(t testing.TB, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return s.(*store.Memory).Snapshot()
		})
}

func TestCrashingKeepsTheContractUntilItCrashes(t *testing.T) {
	t.Parallel()
	type crashing struct {
		*store.Crashing
		disk *store.Memory
	}
	open := func(m *store.Memory) *crashing { return &crashing{store.NewCrashing(m), m} }
	storetest.Run(t,
		func(testing.TB) store.Store { return open(store.NewMemory()) },
		func(t testing.TB, s store.Store) store.Store { return open(s.(*crashing).disk.Snapshot()) })
}

func TestCrashingEnumeratesEveryWrite(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	run := func(c *store.Crashing) (acked int) {
		for i := range 5 {
			if err := c.Write(ctx, put(fmt.Sprint(i), "v"), put("last", fmt.Sprint(i))); err != nil {
				if !errors.Is(err, store.ErrCrashed) {
					t.Fatal(err)
				}
				return acked
			}
			acked++
		}
		return acked
	}
	whole := store.NewCrashing(store.NewMemory())
	if run(whole) != 5 || whole.Count() != 5 {
		t.Fatalf("counted %d", whole.Count())
	}
	for n := 1; n <= whole.Count(); n++ {
		for _, when := range []store.When{store.Before, store.After} {
			disk := store.NewMemory()
			c := store.NewCrashing(disk)
			c.CrashAt(n, when)
			if acked := run(c); acked != n-1 {
				t.Fatalf("crash at %d after %d acknowledged writes", n, acked)
			}
			select {
			case <-c.Crashed():
			default:
				t.Fatal("Crashed is not closed")
			}
			_, err := c.Get(ctx, "k", "0")
			if !errors.Is(err, store.ErrCrashed) || !errors.Is(c.Write(ctx), store.ErrCrashed) ||
				!errors.Is(c.List(ctx, "k", "", nil), store.ErrCrashed) || c.Close() != nil {
				t.Fatal("the store answers after its crash")
			}
			kept := 0
			if err := disk.List(ctx, "k", "", func(k string, _ []byte) error {
				if k != "last" {
					kept++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := n - 1 + int(when); kept != want {
				t.Fatalf("crash at %d (%d): %d writes on the disk, want %d", n, when, kept, want)
			}
		}
	}
}

// A process killed between any two writes finds everything it was told is written.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	const acked = 37
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildWritesAndDies$")
	cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+path, fmt.Sprintf("STORE_TEST_WRITES=%d", acked))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v: %s", err, out)
	}
	s := openAt(t, path)
	for i := range acked {
		if _, err := s.Get(context.Background(), "k", fmt.Sprint(i)); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

func TestChildWritesAndDies(t *testing.T) {
	path := os.Getenv("STORE_TEST_CHILD")
	if path == "" {
		t.Skip("runs only as the child of TestKilledProcess")
	}
	var n int
	if _, err := fmt.Sscan(os.Getenv("STORE_TEST_WRITES"), &n); err != nil {
		t.Fatal(err)
	}
	s, err := store.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := s.Write(context.Background(), put(fmt.Sprint(i), "v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {}
}

func TestOnePeerPerJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	openAt(t, path)
	if _, err := store.OpenSQLite(path); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("second opening: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fill := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "journal.db")
		s := openAt(t, path)
		for i := range 200 {
			if err := s.Write(ctx, put(fmt.Sprintf("%03d", i), "the value of this record")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	change := func(t *testing.T, path string, f func([]byte) []byte) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	readAll := func(path string) error {
		s, err := store.OpenSQLite(path)
		if err != nil {
			return err
		}
		defer s.Close()
		return s.List(ctx, "k", "", func(string, []byte) error { return nil })
	}
	for name, f := range map[string]func([]byte) []byte{
		"not a journal": func(b []byte) []byte { return bytes.Repeat([]byte("text "), 2000) },
		"cut short":     func(b []byte) []byte { return b[:len(b)/2] },
		"zeroed pages":  func(b []byte) []byte { clear(b[4096:]); return b },
		"bits of values": func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("the value"), []byte("the walue")) // everywhere: pages keep old copies
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := fill(t)
			if err := readAll(path); err != nil {
				t.Fatal(err)
			}
			change(t, path, f)
			if err := readAll(path); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("%v", err)
			}
		})
	}
	t.Run("newer version", func(t *testing.T) {
		t.Parallel()
		path := fill(t)
		change(t, path, func(b []byte) []byte { b[63]++; return b }) // user_version, big-endian at offset 60
		if err := readAll(path); !errors.Is(err, store.ErrVersion) {
			t.Fatalf("%v", err)
		}
	})
	t.Run("no such folder", func(t *testing.T) {
		t.Parallel()
		path := fill(t)
		if _, err := store.OpenSQLite(filepath.Join(path, "below a file")); err == nil {
			t.Fatal("opened a journal below a file")
		}
	})
}

// testFull fills the disk under a journal, which stays readable, and then frees some space, after which it writes again.
func testFull(t *testing.T, s *store.SQLite, free func()) {
	t.Helper()
	ctx := context.Background()
	value := bytes.Repeat([]byte("x"), 20_000)
	written := 0
	for ; ; written++ {
		err := s.Write(ctx, store.Put{Kind: "k", Key: fmt.Sprintf("%04d", written), Value: value})
		if errors.Is(err, store.ErrFull) {
			break
		}
		if err != nil || written > 1000 {
			t.Fatalf("after %d writes: %v", written, err)
		}
	}
	if written < 5 {
		t.Fatalf("full after %d writes", written)
	}
	check := func() {
		t.Helper()
		n := 0
		if err := s.List(ctx, "k", "", func(_ string, v []byte) error {
			if n++; !bytes.Equal(v, value) {
				return errors.New("a record changed")
			}
			return nil
		}); err != nil || n != written {
			t.Fatalf("%d of %d records, %v", n, written, err)
		}
	}
	check()
	if err := s.Write(ctx, store.Put{Kind: "k", Key: "again", Value: value}); !errors.Is(err, store.ErrFull) {
		t.Fatalf("still full: %v", err)
	}
	check()
	free()
	for range 3 {
		if err := s.Write(ctx, store.Put{Kind: "k", Key: fmt.Sprintf("%04d", written), Value: value}); err != nil {
			t.Fatalf("after space was freed: %v", err)
		}
		written++
	}
	check()
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path)
	check()
}

func TestFullFile(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "journal.db"))
	s.LimitPages(t, 100)
	testFull(t, s, func() { s.LimitPages(t, 1000) })
}

// One write of a group that does not fit fails alone.
func TestFullFailsOnlyWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "journal.db"))
	s.LimitPages(t, 60)
	small, big := make(chan error, 20), make(chan error, 1)
	s.Group(t, func() {
		for i := range cap(small) {
			go func() { small <- s.Write(context.Background(), put(fmt.Sprint(i), "v")) }()
		}
		go func() { big <- s.Write(context.Background(), put("big", string(make([]byte, 1<<20)))) }()
	}, cap(small)+1)
	if err := <-big; !errors.Is(err, store.ErrFull) {
		t.Fatalf("big: %v", err)
	}
	for range cap(small) {
		if err := <-small; err != nil {
			t.Fatal(err)
		}
	}
}

func benchmarkStore(b *testing.B, writers int) {
	s := openAt(b, filepath.Join(b.TempDir(), "journal.db"))
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(max(1, writers/2))
	run := func() {
		i := n.Add(1)
		value := make([]byte, 600)                      // a metering state
		binary.LittleEndian.PutUint64(value, uint64(i)) // SQLite skips a write that changes nothing
		if err := s.Write(context.Background(), store.Put{Kind: "meter", Key: fmt.Sprintf("%03d", i%100), Value: value}); err != nil {
			b.Error(err)
		}
	}
	if writers == 1 {
		for b.Loop() {
			run()
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				run()
			}
		})
	}
	b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "writes/s")
}

func BenchmarkWriteAlone(b *testing.B)     { benchmarkStore(b, 1) }
func BenchmarkWrite64Writers(b *testing.B) { benchmarkStore(b, 64) }

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.db")
	for b.Loop() {
		s, err := store.OpenSQLite(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
