package house

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

const walkFile = "testdata/walk.txt"

func walk(t *testing.T) []Stop {
	t.Helper()
	text, err := os.ReadFile(walkFile)
	if err != nil {
		t.Fatal(err)
	}
	stops, err := ParseWalk(text)
	if err != nil {
		t.Fatalf("%s: %v", walkFile, err)
	}
	if len(stops) == 0 {
		t.Fatalf("%s: no stop", walkFile)
	}
	return stops
}

func TestWalk(t *testing.T) {
	t.Parallel()
	for _, breach := range CheckWalk(walk(t), load(t)) {
		t.Error(breach)
	}
}

func TestWalkCanFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "market", "a.go"), "package x\nfunc f() {}\nfunc (t *T) m() {}\n")
	files, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, m := Stop{"market/a.go", "f"}, Stop{"market/a.go", "T.m"}
	for _, c := range []struct {
		stops []Stop
		want  int
	}{
		{[]Stop{f, m, f}, 0}, {[]Stop{f, f}, 1}, {[]Stop{{"market/b.go", "f"}}, 1},
		{[]Stop{{"market/a.go", "m"}}, 1}, {[]Stop{{"market/a.go", "T.f"}}, 1},
	} {
		if got := CheckWalk(c.stops, files); len(got) != c.want {
			t.Errorf("%v: got %q, want %d sentences", c.stops, got, c.want)
		}
	}
	if _, err := ParseWalk([]byte("# A phase\nmarket/a.go\n")); err == nil {
		t.Error("a line without function: got no error")
	}
	_, limit := barOf(Figure{Bar: "walk-files", Subject: "order"})
	var long []Stop
	for i := range limit + 1 {
		long = append(long, Stop{fmt.Sprint(i), "f"}, Stop{fmt.Sprint(i), "g"})
	}
	if got := MeasureWalk(long); len(got) != 1 || got[0].Value != limit+1 {
		t.Errorf("%d files: got %v, want one figure", limit+1, got)
	}
	if got := MeasureWalk(long[2:]); len(got) != 0 {
		t.Errorf("%d files: got %v, want none", limit, got)
	}
}
