package ranklog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"
)

// text returns the streams of the frames that q selects.
func text(t testing.TB, l *Log, q Query) (stdout, stderr string) {
	t.Helper()
	var b bytes.Buffer
	if err := l.Copy(t.Context(), &b, q); err != nil {
		t.Fatal(err)
	}
	return split(t, b.Bytes())
}

func split(t testing.TB, b []byte) (stdout, stderr string) {
	t.Helper()
	var s [3]strings.Builder
	for f, err := range frames(bytes.NewReader(b), 0, int64(len(b))) {
		if err != nil {
			t.Fatal(err)
		}
		s[f.stream].Write(f.data)
	}
	return s[StreamStdout].String(), s[StreamStderr].String()
}

func open(t testing.TB) *Log {
	t.Helper()
	l, err := Open(filepath.Join(t.TempDir(), "rank.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.End)
	return l
}

func add(t testing.TB, l *Log, stream byte, text string) {
	t.Helper()
	if err := l.Append(stream, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	l := open(t)
	add(t, l, StreamStdout, "one\ntwo\nth")
	add(t, l, StreamStderr, "oh\n")
	add(t, l, StreamStdout, "ree\nfo")
	add(t, l, StreamStderr, "no\n")
	add(t, l, StreamStdout, "ur")
	for n, want := range []string{"/", "four/", "four/no\n", "three\nfour/no\n", "three\nfour/oh\nno\n", "two\nthree\nfour/oh\nno\n"} {
		if out, errs := text(t, l, Query{Tail: &n}); out+"/"+errs != want {
			t.Errorf("the last %d lines are %q, want %q", n, out+"/"+errs, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := 1
	if err := l.Copy(ctx, &bytes.Buffer{}, Query{Tail: &one}); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that went away: %v", err)
	}
}

// Whatever the frames, a tail is the end of each stream, begins where a line begins, and has as many lines as it is asked
// for, or all; the two rests without an end count as one.
func TestTailOfAnyFrames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		l, err := Open(filepath.Join(dir, rapid.StringMatching(`[a-z]{16}`).Draw(r, "name")))
		if err != nil {
			r.Fatal(err)
		}
		defer l.End()
		var all [3]string
		for range rapid.IntRange(0, 12).Draw(r, "frames") {
			stream := rapid.SampledFrom([]byte{StreamStdout, StreamStderr}).Draw(r, "stream")
			data := rapid.StringMatching(`[ab\n]{1,6}`).Draw(r, "data")
			if err := l.Append(stream, []byte(data)); err != nil {
				r.Fatal(err)
			}
			all[stream] += data
		}
		n := rapid.IntRange(0, 10).Draw(r, "lines")
		var got [3]string
		got[StreamStdout], got[StreamStderr] = text(t, l, Query{Tail: &n})
		total, lines, rest := 0, 0, 0
		for _, s := range []byte{StreamStdout, StreamStderr} {
			dropped, ok := strings.CutSuffix(all[s], got[s])
			if !ok || n > 0 && dropped != "" && !strings.HasSuffix(dropped, "\n") {
				r.Errorf("%q is no tail of %q", got[s], all[s])
			}
			total += strings.Count(all[s], "\n")
			lines += strings.Count(got[s], "\n")
			if all[s] != "" && !strings.HasSuffix(all[s], "\n") {
				rest = 1
			}
		}
		if n > 0 {
			lines += rest
		}
		if want := min(n, total+rest); lines != want {
			r.Errorf("%d lines of %d, want %d", lines, total+rest, want)
		}
	})
}

func TestSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t)
		began := time.Now()
		for i := range 10 {
			add(t, l, StreamStdout, fmt.Sprintln(2*i))
			add(t, l, StreamStderr, fmt.Sprintln(2*i))
			time.Sleep(2 * time.Second)
		}
		check := func(when string) {
			t.Helper()
			two := 2
			for _, c := range []struct {
				after time.Duration
				tail  *int
				want  string
			}{
				{-time.Hour, nil, "0\n2\n4\n6\n8\n10\n12\n14\n16\n18\n"}, {13 * time.Second, nil, "14\n16\n18\n"},
				{14*time.Second + 900*time.Millisecond, nil, "14\n16\n18\n"}, {15 * time.Second, nil, "16\n18\n"},
				{19 * time.Second, nil, ""}, {13 * time.Second, &two, "18\n"}, {19 * time.Second, &two, ""},
			} {
				if out, errs := text(t, l, Query{Since: began.Add(c.after), Tail: c.tail}); out != c.want || errs != c.want {
					t.Errorf("%s: since %v: %q and %q, want %q", when, c.after, out, errs, c.want)
				}
			}
		}
		check("live")
		l.End()
		check("ended")
		again, err := Open(l.path)
		if err != nil {
			t.Fatal(err)
		}
		l = again
		defer l.End()
		check("opened again")

		// A follower from now on receives new frames alone.
		var b bytes.Buffer
		followed := make(chan error)
		go func() { followed <- l.Copy(t.Context(), &b, Query{Since: time.Now(), Follow: true}) }()
		synctest.Wait()
		add(t, l, StreamStdout, "new\n")
		synctest.Wait()
		l.End()
		if err := <-followed; err != nil {
			t.Error(err)
		}
		if out, errs := split(t, b.Bytes()); out != "new\n" || errs != "" {
			t.Errorf("followed %q and %q", out, errs)
		}
	})
}

// A mark of a frame that is lost goes with it, and a log of before there were marks is whole.
func TestSinceAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t)
		add(t, l, StreamStdout, "old\n")
		whole := l.Len()
		time.Sleep(time.Minute)
		add(t, l, StreamStdout, "torn\n")
		l.End()
		if err := os.Truncate(l.path, l.Len()-1); err != nil {
			t.Fatal(err)
		}
		l, err := Open(l.path)
		if err != nil || l.Len() != whole {
			t.Fatalf("%d bytes, want %d: %v", l.Len(), whole, err)
		}
		lost := time.Now()
		time.Sleep(time.Minute)
		add(t, l, StreamStdout, "new\n")
		if out, _ := text(t, l, Query{Since: lost}); out != "new\n" {
			t.Errorf("%q", out)
		}
		l.End()
		if err := os.Remove(l.path + timesSuffix); err != nil {
			t.Fatal(err)
		}
		if l, err = Open(l.path); err != nil {
			t.Fatal(err)
		}
		defer l.End()
		if out, _ := text(t, l, Query{Since: time.Now()}); out != "old\nnew\n" {
			t.Errorf("a log without times: %q", out)
		}
	})
}

// stored is a store with one file.
type stored struct{ path string }

func (s stored) Put(_ context.Context, r io.Reader) (c cid.Cid, n int64, err error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return c, 0, err
	}
	return c, int64(len(b)), os.WriteFile(s.path, b, 0o600)
}

func (s stored) Path(cid.Cid) (string, error) { return s.path, nil }

// The part of a log that another peer kept counts as arrived when it is restored.
func TestSinceOfARestoredLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := stored{filepath.Join(t.TempDir(), "kept")}
		other := open(t)
		add(t, other, StreamStdout, "theirs\n")
		c, n, err := other.Store(t.Context(), kept)
		if err != nil || n != other.Len() {
			t.Fatalf("stored %d bytes: %v", n, err)
		}
		l := open(t)
		add(t, l, StreamStdout, "mine\n")
		base := l.Len()
		time.Sleep(time.Minute)
		add(t, l, StreamStdout, "replaced\n")
		time.Sleep(time.Minute)
		restored := time.Now()
		if err := l.Restore(kept, c, base); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		add(t, l, StreamStdout, "later\n")
		for _, c := range []struct {
			since time.Time
			want  string
		}{
			{time.Time{}, "mine\ntheirs\nlater\n"}, {restored.Add(-30 * time.Second), "theirs\nlater\n"},
			{restored, "theirs\nlater\n"}, {restored.Add(time.Second), "later\n"},
		} {
			if out, _ := text(t, l, Query{Since: c.since}); out != c.want {
				t.Errorf("since %v: %q, want %q", c.since, out, c.want)
			}
		}
	})
}
