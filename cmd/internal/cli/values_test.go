package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Second: "0s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 5 * time.Hour: "5h", 72 * time.Hour: "3d"} {
		if got := Span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := Clip(strings.Repeat("ä", 10), 4); got != "äää…" {
		t.Errorf("%q", got)
	}
}

// A file has its mode, replaces no other, and is removed if its content breaks off.
func TestSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	broken := errors.New("broken")
	cut := io.MultiReader(strings.NewReader("a part"), iotest.ErrReader(broken))
	if err := Save(cut, path, 0o600); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
	if err := Save(strings.NewReader("whole"), path, 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", st, err)
	}
	if err := Save(strings.NewReader("another"), path, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v, want ErrExist", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "whole" {
		t.Errorf("it has %q, %v", text, err)
	}
}
