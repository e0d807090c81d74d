package runtime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A log is the first bytes of all writes, however they were parted, and the marker once if there were more.
func TestLogWriterProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		var all, out bytes.Buffer
		w := NewLogWriter(&out, int64(limit))
		for _, part := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 8), 0, 8).Draw(t, "parts") {
			all.Write(part)
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(part), err)
			}
		}
		kept, marker, cut := bytes.Cut(out.Bytes(), []byte(LogCutMarker))
		if !bytes.Equal(kept, all.Bytes()[:min(limit, all.Len())]) || cut != (all.Len() > limit) || w.Err() != nil {
			t.Fatalf("kept %q of %q, cut %v (%q)", kept, all.Bytes(), cut, marker)
		}
	})
}

// broken is a disk that fails after so many writes.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

// A program is not stopped by a log that cannot be written, nor by a marker that cannot; the error is kept.
func TestLogWriterKeepsItsError(t *testing.T) {
	t.Parallel()
	for left := range 2 {
		w := NewLogWriter(&broken{left}, 4)
		for range 3 {
			if n, err := w.Write([]byte("abcdef")); n != 6 || err != nil {
				t.Errorf("after %d writes: %d, %v", left, n, err)
			}
		}
		if w.Err() == nil {
			t.Errorf("after %d writes the error is lost", left)
		}
	}
}

// follow begins to read a log that a test appends to.
func follow(t *testing.T, ctx context.Context, offset int64) (r io.ReadCloser, log *os.File, over, gone chan struct{}) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	over, gone = make(chan struct{}), make(chan struct{})
	if r, err = FollowLog(ctx, path, Stdout, offset, over, gone); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, log, over, gone
}

// A reader of a log gets what is appended while it waits, and its end when the execution has ended.
func TestFollowLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, log, over, _ := follow(t, t.Context(), 2)
		go func() {
			for _, text := range []string{"ab", "cd", "ef"} {
				time.Sleep(time.Minute)
				_, _ = log.WriteString(text)
			}
			time.Sleep(time.Minute)
			_, _ = log.WriteString("gh") // written right before the end
			close(over)
		}()
		text, err := io.ReadAll(r)
		if err != nil || string(text) != "cdefgh" {
			t.Errorf("got %q, %v, want what follows on the offset", text, err)
		}
		if n, err := r.Read(make([]byte, 9)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d, %v", n, err)
		}
	})
}

// A reader that waits gives up when its context ends, when it is closed, and when the runtime is gone.
func TestFollowLogGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, _, _, _ := follow(t, ctx, 0)
		closed, _, _, _ := follow(t, t.Context(), 0)
		lost, log, _, gone := follow(t, t.Context(), 0)
		go func() {
			time.Sleep(time.Hour)
			cancel()
			_ = closed.Close()
			close(gone)
		}()
		p := make([]byte, 2)
		if _, err := cancelled.Read(p); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if _, err := closed.Read(p); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("closed: %v, want an error that is no end", err)
		}
		if _, err := lost.Read(p); !errors.Is(err, ErrClosed) {
			t.Errorf("gone: %v", err)
		}
		if _, err := log.WriteString("xy"); err != nil {
			t.Fatal(err)
		}
		if n, err := lost.Read(p); n != 2 || err != nil {
			t.Errorf("what is there is read all the same: %d, %v", n, err)
		}
	})
}

// A stream that does not exist, an offset before the log, and a missing log are errors at once.
func TestFollowLogRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (io.ReadCloser, error){
		"stream":  func() (io.ReadCloser, error) { return FollowLog(t.Context(), path, "stdin", 0, nil, nil) },
		"offset":  func() (io.ReadCloser, error) { return FollowLog(t.Context(), path, Stderr, -1, nil, nil) },
		"missing": func() (io.ReadCloser, error) { return FollowLog(t.Context(), path+"x", Stderr, 0, nil, nil) },
	} {
		if r, err := open(); err == nil || r != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}
