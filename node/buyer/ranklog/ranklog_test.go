package ranklog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRanklogSurvivesATornFrame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rank.log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		stream byte
		text   string
	}{{StreamStdout, "hello "}, {StreamStderr, "oh"}, {StreamStdout, "world\n"}} {
		if err := l.Append(s.stream, []byte(s.text)); err != nil {
			t.Fatal(err)
		}
	}
	whole := l.Len()
	if err := l.Append(StreamStdout, []byte("torn")); err != nil {
		t.Fatal(err)
	}
	l.End()
	if err := l.Append(StreamStdout, []byte("late")); !errors.Is(err, ErrEnded) {
		t.Fatalf("writing to an ended log: %v", err)
	}
	if err := os.Truncate(path, l.Len()-2); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path); err != nil {
		t.Fatal(err)
	}
	if l.Len() != whole {
		t.Fatalf("log is %d bytes long, the whole frames %d", l.Len(), whole)
	}
	out, errs, err := l.Offsets(0)
	if err != nil || out != 12 || errs != 2 {
		t.Fatalf("offsets %d, %d, %v", out, errs, err)
	}
	l.End()
	var b bytes.Buffer
	if err := l.Copy(t.Context(), &b, Query{Follow: true}); err != nil || int64(b.Len()) != whole {
		t.Fatalf("copied %d of %d bytes: %v", b.Len(), whole, err)
	}
}

func FuzzRanklog(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Add([]byte{3, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		end, out, errs, err := scanFrames(bytes.NewReader(b), 0)
		if err != nil || end > int64(len(b)) || int64(out+errs) > end {
			t.Fatalf("%d bytes: end %d, streams %d+%d, %v", len(b), end, out, errs, err)
		}
	})
}
