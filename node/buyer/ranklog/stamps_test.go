package ranklog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// at is the stamp of a time in a bubble of synctest, whose clock begins at midnight.
func at(d time.Duration) string {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(stampLayout) + " "
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t)
		add(t, l, StreamStdout, "one\ntwo\nth")
		add(t, l, StreamStderr, "oh\n")
		time.Sleep(1500 * time.Millisecond)
		add(t, l, StreamStdout, "ree\n\n")
		add(t, l, StreamStderr, "no\n")
		time.Sleep(time.Minute)
		add(t, l, StreamStdout, "four")
		began, second, last := at(0), at(time.Second), at(61*time.Second)
		out := began + "one\n" + began + "two\n" + began + "three\n" + second + "\n" + last + "four"
		errs := began + "oh\n" + second + "no\n"
		check := func(q Query, wantOut, wantErrs string) {
			t.Helper()
			q.Timestamps = true
			if gotOut, gotErrs := text(t, l, q); gotOut != wantOut || gotErrs != wantErrs {
				t.Errorf("%+v: %q and %q, want %q and %q", q, gotOut, gotErrs, wantOut, wantErrs)
			}
		}
		three := 3
		later := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)
		check(Query{}, out, errs)
		check(Query{Tail: &three}, second+"\n"+last+"four", second+"no\n")
		check(Query{Since: later}, second+"ree\n"+second+"\n"+last+"four", second+"no\n")
		check(Query{Since: later, Tail: new(int)}, "", "")

		// A follower stamps a line that arrives in parts once.
		var b bytes.Buffer
		followed := make(chan error)
		go func() { followed <- l.Copy(t.Context(), &b, Query{Timestamps: true, Follow: true}) }()
		synctest.Wait()
		time.Sleep(time.Hour)
		add(t, l, StreamStdout, "teen\n")
		add(t, l, StreamStdout, "five\n")
		synctest.Wait()
		l.End()
		if err := <-followed; err != nil {
			t.Error(err)
		}
		out += "teen\n" + at(time.Hour+61*time.Second) + "five\n"
		if gotOut, gotErrs := split(t, b.Bytes()); gotOut != out || gotErrs != errs {
			t.Errorf("followed %q and %q, want %q and %q", gotOut, gotErrs, out, errs)
		}
		check(Query{}, out, errs)
	})
}

// Lines of before there were marks, and of a log whose marks are lost, have no time.
func TestTimestampsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t)
		add(t, l, StreamStdout, "old\n")
		l.End()
		if err := os.Remove(l.path + timesSuffix); err != nil {
			t.Fatal(err)
		}
		l, err := Open(l.path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.End()
		all := Query{Timestamps: true}
		if out, _ := text(t, l, all); out != "- old\n" {
			t.Errorf("without marks: %q", out)
		}
		time.Sleep(time.Second)
		add(t, l, StreamStdout, "new\n")
		if out, _ := text(t, l, all); out != "- old\n"+at(time.Second)+"new\n" {
			t.Errorf("with the first mark: %q", out)
		}
		if err := os.Truncate(l.path+timesSuffix, 0); err != nil {
			t.Fatal(err)
		}
		if out, _ := text(t, l, all); out != "- old\n- new\n" {
			t.Errorf("marks cut behind the log's back: %q", out)
		}
	})
}

// Whatever the frames and the part of them, stamps are added at the begins of lines and nothing else changes; the frames
// stay within their bound.
func TestTimestampsOfAnyFrames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		l, err := Open(filepath.Join(dir, rapid.StringMatching(`[a-z]{16}`).Draw(r, "name")))
		if err != nil {
			r.Fatal(err)
		}
		defer l.End()
		for range rapid.IntRange(0, 12).Draw(r, "frames") {
			data := rapid.StringMatching(`[ab\n]{1,6}`).Draw(r, "data")
			data = strings.Repeat(data, rapid.SampledFrom([]int{1, 1, 1, stampedFrame / 6}).Draw(r, "times"))
			if err := l.Append(rapid.SampledFrom([]byte{StreamStdout, StreamStderr}).Draw(r, "stream"), []byte(data)); err != nil {
				r.Fatal(err)
			}
		}
		var q Query
		if n := rapid.IntRange(-1, 10).Draw(r, "tail"); n >= 0 {
			q.Tail = &n
		}
		out, errs := text(t, l, q)
		q.Timestamps = true
		stampedOut, stampedErrs := text(t, l, q)
		for stream, s := range map[string][2]string{"stdout": {out, stampedOut}, "stderr": {errs, stampedErrs}} {
			if bare, err := unstamp(s[1]); err != nil || bare != s[0] {
				r.Errorf("%s: %.200q is stamped as %.200q: %v", stream, s[0], s[1], err)
			}
		}
	})
}

// unstamp removes the time at the begin of each line.
func unstamp(s string) (string, error) {
	var bare strings.Builder
	for line := range strings.SplitAfterSeq(s, "\n") {
		if line == "" {
			continue
		}
		stamp, rest, ok := strings.Cut(line, " ")
		if _, err := time.Parse(stampLayout, stamp); err != nil || !ok {
			return "", fmt.Errorf("line %.40q has no stamp: %w", line, err)
		}
		bare.WriteString(rest)
	}
	return bare.String(), nil
}

// BenchmarkTimestamps compares reading a log of short lines with their times and without.
func BenchmarkTimestamps(b *testing.B) {
	l := open(b)
	for range 1000 {
		add(b, l, StreamStdout, strings.Repeat("a line of some length\n", 50))
	}
	for name, q := range map[string]Query{"plain": {}, "stamped": {Timestamps: true}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(l.Len())
			for b.Loop() {
				var w bytes.Buffer
				if err := l.Copy(b.Context(), &w, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
