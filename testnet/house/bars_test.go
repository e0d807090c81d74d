package house

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "lower and remove entries of testdata/excess.txt that got better")

const listFile = "testdata/excess.txt"

func TestBars(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := ParseList(text)
	if err != nil {
		t.Fatalf("%s: %v", listFile, err)
	}
	pages, err := MeasurePages(root(t))
	if err != nil {
		t.Fatal(err)
	}
	excess := slices.Concat(Measure(load(t)), pages, MeasureWalk(walk(t)))
	worse, better, next := Compare(listed, excess)
	report(t, worse, nil)
	switch {
	case *update:
		if err := os.WriteFile(listFile, FormatList(next), 0o644); err != nil {
			t.Fatal(err)
		}
	case len(better) > 0:
		t.Errorf("%s: %d entries got better. Lower them, so that the gain is kept: go test ./testnet/house -update\n%s",
			listFile, len(better), strings.Join(better, "\n"))
	}
	if got := FormatList(listed); string(got) != string(text) && !*update {
		t.Errorf("%s: not in its form: go test ./testnet/house -update", listFile)
	}
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	if len(Exceptions) > MaxExceptions {
		t.Errorf("exceptions: got %d, want at most %d", len(Exceptions), MaxExceptions)
	}
	for _, e := range Exceptions {
		if e.Why == "" || !slices.ContainsFunc(Bars, func(b Bar) bool { return b.Name == e.Bar }) {
			t.Errorf("exception %v: want a known bar and a reason", e)
		}
	}
}

// TestBarsCanFail builds a small tree for each bar that misses exactly this one.
func TestBarsCanFail(t *testing.T) {
	t.Parallel()
	const head = "// Package x is a case.\npackage x\n"
	repeat := func(n int, format string) string {
		var s strings.Builder
		for i := range n {
			s.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return s.String()
	}
	filler := strings.Repeat("// a word\n", 600)
	cases := []struct {
		bar, file, source string
		subject           string
		value             int
	}{
		{"package-lines", "market/x#.go", head + strings.Repeat("\n", 200), "market", 3300},
		{"file-lines", "market/a.go", head + strings.Repeat("\n", 401), "market/a.go", 420},
		{"function-lines", "market/a.go", head + "func (t *T[A]) f() {\n" + strings.Repeat("\n", 80) + "}\n", "market.T.f", 90},
		{"wide-lines", "market/a.go", head + "//" + strings.Repeat("x", 119) + "\n", "market", 10},
		{"type-methods", "market/a.go", head + repeat(31, "func (t *T) f#() {}\n"), "market.T", 31},
		{"interface-methods", "market/a.go", head + "type i interface {\n" + repeat(7, "f#()\n") + "}\n", "market.i", 7},
		{"fan-out", "node/a.go", head + repeat(36, "import _ \""+Module+"/market/p#\"\n"), "node", 36},
		{"struct-mutexes", "p2p/a.go", head + "type t struct { a sync.Mutex; b *sync.RWMutex }\n", "p2p.t", 2},
		{"config-functions", "p2p/a.go", head + "type aConfig struct { a, b, c, d func() }\n", "p2p.aConfig", 4},
		{"store-calls", "node/a.go", head + "type t struct { s store.Store }\nfunc f(x t) { x.s.Get() }\n", "node", 1},
		{"undocumented", "p2p/a.go", head + "func F() {}\n// T is one.\ntype T int\n", "p2p", 1},
		{"word-what", "p2p/a.go", head + filler + "// what\n// what\n", "p2p", 20},
		{"word-who", "p2p/a.go", head + filler + "// whose\n", "p2p", 10},
		{"word-tell", "p2p/a.go", head + filler + "// tells\n", "p2p", 9},
		{"word-nobody", "p2p/a.go", head + filler + "// nobody\n", "p2p", 9},
		{"word-says", "p2p/a.go", head + filler + "// says\n", "p2p", 9},
		{"word-one-that", "p2p/a.go", head + filler + "// those\n// that\n", "p2p", 9},
		{"word-so-many", "p2p/a.go", head + filler + "// so many\n", "p2p", 9},
		{"word-any-more", "p2p/a.go", head + "const s = `any more words`\n", "p2p:texts", 3334},
		{"says-whether", "p2p/a_test.go", head + "// f says\n// whether.\nfunc f() {}\n", "p2p", 1},
	}
	for _, c := range cases {
		t.Run(c.bar, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := []string{c.file}
			if strings.Contains(c.file, "#") {
				files = nil
				for i := range 16 {
					files = append(files, strings.ReplaceAll(c.file, "#", fmt.Sprint(i)))
				}
			}
			for _, name := range files {
				write(t, filepath.Join(dir, filepath.FromSlash(name)), c.source)
			}
			parsed, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(Measure(parsed), func(f Figure) bool { return f.Bar != c.bar })
			if len(got) != 1 || got[0].Subject != c.subject || got[0].Value != c.value {
				t.Errorf("got %v, want %s: %d", got, c.subject, c.value)
			}
		})
	}
}

func TestPagesCanFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p2p", "a.md"), "`what`\n```\nwhat\n```\nwhat "+strings.Repeat("word ", 199))
	got, err := MeasurePages(dir)
	want := []Figure{{"word-what", "p2p:pages", 50}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestTreesOfSeveralFilesCanFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const head = "// Package x is a case.\npackage x\n"
	for i := range 19 {
		method := fmt.Sprintf("func (t T) f%d() {}\n", i)
		write(t, filepath.Join(dir, "market", fmt.Sprintf("f%d.go", i)), head+method)
		next := fmt.Sprintf("import _ %q\n", fmt.Sprintf("%s/verify/p%d", Module, i+1))
		write(t, filepath.Join(dir, "verify", fmt.Sprintf("p%d", i), "a.go"), head+next)
	}
	write(t, filepath.Join(dir, "chain", "a.go"), head+strings.Repeat("\n", 600))
	write(t, filepath.Join(dir, "chain", "a_test.go"), head+strings.Repeat("\n", 550))
	write(t, filepath.Join(dir, "node", "a.go"), head+strings.Repeat("\n", 600))
	write(t, filepath.Join(dir, "node", "a_test.go"), head+strings.Repeat("\n", 100))
	parsed, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	excess := Measure(parsed)
	for _, want := range []Figure{
		{"package-files", "market", 19}, {"type-files", "market.T", 19}, {"import-depth", "verify/p0", 20},
		{"import-depth", "verify/p7", 13}, {"pure-test-percent", "chain", 90}, {"test-percent", "node", 15},
	} {
		if !slices.Contains(excess, want) {
			t.Errorf("got %v, want %v among them", excess, want)
		}
	}
	if slices.Contains(excess, Figure{"import-depth", "verify/p8", 12}) {
		t.Error("import-depth: a package at its bar was reported")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestListOnlyShrinks compares random lists with random trees: the next list has no entry that the old one lacks and no
// value that is worse, and a tree no worse than its list passes after one update.
func TestListOnlyShrinks(t *testing.T) {
	t.Parallel()
	figures := rapid.MapOf(rapid.Custom(func(t *rapid.T) [2]string {
		return [2]string{rapid.SampledFrom(Bars).Draw(t, "bar").Name, rapid.StringMatching("[a-c]").Draw(t, "subject")}
	}), rapid.IntRange(0, 99))
	list := func(m map[[2]string]int) (out []Figure) {
		for k, v := range m {
			out = append(out, Figure{k[0], k[1], v})
		}
		sortFigures(out)
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		listed, excess := figures.Draw(t, "listed"), figures.Draw(t, "excess")
		worse, _, next := Compare(list(listed), list(excess))
		for _, f := range next {
			was, ok := listed[[2]string{f.Bar, f.Subject}]
			if bar, _ := barOf(f); !ok || bar.worse(f.Value, was) {
				t.Fatalf("%v: got a list that grew from %v", f, listed)
			}
		}
		again, better, _ := Compare(next, list(excess))
		if len(better) > 0 || len(again) != len(worse) {
			t.Fatalf("after an update: got %q and %q, want only %q", again, better, worse)
		}
		parsed, err := ParseList(FormatList(next))
		if err != nil || !slices.Equal(parsed, next) {
			t.Fatalf("read back: got %v, %v, want %v", parsed, err, next)
		}
	})
}
