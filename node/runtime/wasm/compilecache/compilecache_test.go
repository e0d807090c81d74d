package compilecache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, path string, size int, age time.Duration) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*", "*/*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && !info.IsDir() {
				out = append(out, filepath.Base(f))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestPrune(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit int64
		want  []string
	}{
		"all fit":       {300, []string{"a.turn", "middle", "new", "old", "young.tmp"}},
		"one too many":  {299, []string{"middle", "new", "young.tmp"}},
		"two too many":  {150, []string{"new", "young.tmp"}},
		"nothing fits":  {0, []string{}},
		"limit below 0": {-1, []string{}},
	} {
		dir := t.TempDir()
		entries := filepath.Join(dir, "wazero-1")
		put(t, filepath.Join(entries, "old"), 100, 50*time.Minute)
		put(t, filepath.Join(entries, "middle"), 100, 40*time.Minute)
		put(t, filepath.Join(entries, "new"), 99, 30*time.Minute)
		put(t, filepath.Join(entries, "young.tmp"), 1, time.Minute)
		put(t, filepath.Join(entries, "abandoned.tmp"), 1000, 2*abandoned)
		put(t, filepath.Join(dir, "a.turn"), 1, 3*abandoned)
		Prune(dir, c.limit)
		if got := names(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	Prune(filepath.Join(t.TempDir(), "none"), 0)
}

// Machine code that other users may have written is not run.
func TestAttackForeignCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]string{0o700: "", 0o755: "", 0o777: "writable by other users: mode 777",
		0o770: "writable by other users: mode 770"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := Check(dir); (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("mode %o: %v, want %q", mode, err, want)
		}
	}
	if err := Check(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err == nil || !strings.Contains(err.Error(), "of another user: uid 1000, want 0") {
		t.Errorf("another user's: %v", err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "wazero-1", "entry"), 1, 0)
	put(t, filepath.Join(dir, "wazero-2", "entry"), 1, 0)
	put(t, filepath.Join(dir, "a.turn"), 1, 0)
	put(t, filepath.Join(dir, "other"), 1, 0)
	Empty(dir)
	if got := names(t, dir); !slices.Equal(got, []string{"other"}) {
		t.Errorf("%v", got)
	}
}

func TestTakeTurnWithoutDirectory(t *testing.T) {
	t.Parallel()
	TakeTurn(filepath.Join(t.TempDir(), "none"), nil)(true)
}
