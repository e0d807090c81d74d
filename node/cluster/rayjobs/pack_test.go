package rayjobs

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes a directory of files by name and content; "-> x" is a link to x.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if to, link := strings.CutPrefix(content, "-> "); err == nil && link {
			err = os.Symlink(to, p)
		} else if err == nil {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPack(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"script.py": "print(1)", "data/a.txt": "a", "data/b.log": "b", "keep.log": "k", ".gitignore": "*.log\n!keep.log\n/build/\n# x\n", ".git/config": "g",
		"venv/bin/python": "v", "data/__pycache__/x.pyc": "p", "build/out": "o", "sub/build/out": "o", "sub/.rayignore": "*.bin\n", "sub/x.bin": "x", "x.bin": "x",
		"link": "-> data/a.txt",
	}
	dir := tree(t, files)
	p, err := Pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, c := newHead(t)
	for range 2 { // the second time it is there
		if err := c.Upload(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	b := h.zips[strings.TrimPrefix(p.URI(), "gcs://")]
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		want := files[f.Name]
		if f.Name == "link" {
			want = "a"
		}
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", f.Name, content, err)
		}
	}
	want := []string{".gitignore", "data/", "data/a.txt", "keep.log", "link", "script.py", "sub/", "sub/.rayignore", "sub/build/", "sub/build/out", "x.bin"}
	slices.Sort(names)
	if !slices.Equal(names, want) || p.Files != len(want) {
		t.Errorf("%d: %q", p.Files, names)
	}
	again, err := Pack(tree(t, files))
	if err != nil || again.URI() != p.URI() {
		t.Errorf("the same files make %v and %v, %v", again.URI(), p.URI(), err)
	}
	if err := errors.Join(p.Close(), again.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.file.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the package is left: %v", err)
	}
}

func TestPackRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a way out":    {map[string]string{"a": "-> /etc/passwd"}, "a: "},
		"a way up":     {map[string]string{"a": "-> ../../x"}, "a: "},
		"nowhere":      {map[string]string{"a": "-> b"}, "a: "},
		"a loop":       {map[string]string{"a": "-> a"}, "a: "},
		"a directory":  {map[string]string{"d/x": "x", "a": "-> d"}, "a is no file"},
		"no pattern":   {map[string]string{".rayignore": "ok\n[z-a]\n"}, ".rayignore, line 2: "},
		"long pattern": {map[string]string{".rayignore": strings.Repeat("a", maxRules+1)}, "longer than 1 MiB"},
	} {
		p, err := Pack(tree(t, c.files))
		if !errors.Is(err, ErrPackage) || !strings.Contains(err.Error(), c.want) || p != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Pack(filepath.Join(t.TempDir(), "never")); !errors.Is(err, ErrPackage) {
		t.Error(err)
	}
	// More than Ray takes: a file that does not compress.
	dir := tree(t, map[string]string{"little": "s"})
	noise, f := uint64(1), make([]byte, 3<<20)
	for i := range f {
		noise = noise*6364136223846793005 + 1442695040888963407
		f[i] = byte(noise >> 56)
	}
	if err := os.WriteFile(filepath.Join(dir, "noise"), f, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pack(dir, 2<<20); !errors.Is(err, ErrPackage) || !strings.Contains(err.Error(), "more than the 2 MiB that Ray takes; largest are noise (3 MiB), little (0 MiB)") {
		t.Error(err)
	}
}

func TestIgnore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules, path string
		dir, out    bool
	}{
		{"*.log", "a/b.log", false, true}, {"*.log", "b.log.txt", false, false}, {"/a", "a", false, true}, {"/a", "b/a", false, false},
		{"a/b", "a/b", false, true}, {"a/b", "x/a/b", false, false}, {"d/", "x/d", true, true}, {"d/", "x/d", false, false},
		{"**/c", "a/b/c", false, true}, {"**/c", "c", false, true}, {"a/**", "a/b/c", false, true}, {"a/**", "a", true, false},
		{"a/**/c", "a/c", false, true}, {"a/**/c", "a/x/y/c", false, true}, {"a*c", "abc", false, true}, {"a*c", "a/c", false, false},
		{"?", "a", false, true}, {"?", "é", false, true}, {"[a-c]x", "bx", false, true}, {"[!a-c]x", "bx", false, false}, {"[!a-c]x", "zx", false, true},
		{"[]x]", "]", false, true}, {"[", "[", false, true}, {"[]", "[]", false, true}, {`\#a`, "#a", false, true}, {"#a", "#a", false, false},
		{`\!a`, "!a", false, true}, {"a\n!a", "a", false, false}, {"!a\na", "a", false, true}, {"a \n", "a", false, true}, {`a\ `, "a ", false, true},
		{"a.b", "axb", false, false}, {"/", "a", false, false}, {"a\r\n", "a", false, true}, {`a\`, `a\`, false, true}, {"a**", "abc", false, true},
	} {
		ig, err := parseIgnore("", "f", c.rules)
		if err != nil || ig.out(c.path, c.dir) != c.out {
			t.Errorf("%q of %q: want %v, %v", c.rules, c.path, c.out, err)
		}
	}
}

// FuzzIgnore reads patterns: what is taken can be matched against anything, and says the same again.
func FuzzIgnore(f *testing.F) {
	f.Add("*.log\n!keep.log\n/build/\n**/x/**\n[!a-z]?", "sub/x.log")
	f.Add(`[]a]\ `, "]")
	f.Add("[[:alpha:]]", "a")
	f.Fuzz(func(t *testing.T, rules, path string) {
		ig, err := parseIgnore("sub/", "f", rules)
		if err != nil {
			if !errors.Is(err, ErrPackage) {
				t.Fatal(err)
			}
			return
		}
		if !strings.HasPrefix(path, "sub/") && ig.out(path, false) {
			t.Fatalf("%q is not below sub/", path)
		}
		if again, err := parseIgnore("sub/", "f", rules); err != nil || again.out(path, true) != ig.out(path, true) {
			t.Fatalf("the same rules say something else of %q: %v", path, err)
		}
	})
}
