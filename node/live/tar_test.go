package live

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// place makes a directory with a secret beside it and returns the directory's root.
func place(t testing.TB, files map[string]string) (dir string, root *os.Root) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "mount")
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, p)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

func list(t *testing.T, archive []byte) []string {
	t.Helper()
	var out []string
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			slices.Sort(out)
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s%s", h.Name, b, h.Linkname)))
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	dir, root := place(t, map[string]string{
		"d/a": "aa", "d/sub/b": "bb", "d/away": "-> ../../secret", "d/abs": "-> /etc/passwd", "d/near": "-> sub", "e": "ee",
	})
	var b bytes.Buffer
	if err := Pack(&b, root, "d", "d", 100); err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, b.Bytes()), []string{"d/", "d/a aa", "d/abs /etc/passwd", "d/away ../../secret", "d/near sub", "d/sub/", "d/sub/b bb"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	b.Reset()
	if err := Pack(&b, root, "d/near/b", "x", 100); err != nil || !slices.Equal(list(t, b.Bytes()), []string{"x bb"}) {
		t.Errorf("a file by a link that stays inside: %v", err)
	}
	for _, name := range []string{"d/away", "d/abs", "../secret", "nowhere"} {
		b.Reset()
		if err := Pack(&b, root, name, "x", 100); err == nil || bytes.Contains(b.Bytes(), []byte("secret")) {
			t.Errorf("%s was archived", name)
		}
	}
	if err := Pack(io.Discard, root, "d", "d", 3); !errors.Is(err, ErrRoom) {
		t.Errorf("too much: %v", err)
	}
	// A file that says it has a terabyte costs its writer nothing.
	if err := os.Truncate(filepath.Join(dir, "e"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := Pack(io.Discard, root, "e", "e", 1<<20); !errors.Is(err, ErrRoom) {
		t.Errorf("a sparse file: %v", err)
	}
}

func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = strings.Repeat("x", int(h.Size))
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	file := func(name string, n int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: n, Mode: 0o755}
	}
	link := tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "/etc"}
	there := map[string]string{"in/old": "old", "in/away": "-> ../..", "in/abs": "-> /", "in/file": "-> ../../secret"}
	for _, c := range []struct {
		name    string
		archive []byte
		as      string
		refuse  bool
		most    int64
		want    error // of this package
		fails   bool
		wrote   string // below in, and its bytes
	}{
		{name: "plain", archive: archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}, file("d/a", 3)), most: 10, wrote: "d/a"},
		{name: "renamed", archive: archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "./d/"}, file("./d/a", 3)), as: "e", most: 10, wrote: "e/a"},
		{name: "file renamed", archive: archive(t, file("a", 3)), as: "e", most: 10, wrote: "e"},
		{name: "over what is there", archive: archive(t, file("old", 3)), most: 10, wrote: "old"},
		{name: "in the place of a link", archive: archive(t, file("file", 3)), most: 10, wrote: "file"},
		{name: "links left out", archive: archive(t, link, file("a", 3)), most: 10, wrote: "a"},
		{name: "links refused", archive: archive(t, link), most: 10, refuse: true, want: ErrCopy},
		{name: "device", archive: archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "null"}), most: 10, refuse: true, want: ErrCopy},
		{name: "dots", archive: archive(t, file("../a", 3)), most: 10, want: ErrCopy},
		{name: "dots within", archive: archive(t, file("d/../../a", 3)), most: 10, want: ErrCopy},
		{name: "absolute", archive: archive(t, file("/tmp/a", 3)), most: 10, want: ErrCopy},
		{name: "through a link", archive: archive(t, file("away/a", 3)), most: 10, fails: true},
		{name: "through an absolute link", archive: archive(t, file("abs/tmp/a", 3)), most: 10, fails: true},
		{name: "too large", archive: archive(t, file("a", 11)), most: 10, want: ErrRoom},
		{name: "cut", archive: archive(t, file("a", 600))[:700], most: 1000, fails: true},
		{name: "noise", archive: bytes.Repeat([]byte("noise"), 1000), most: 10, want: ErrCopy},
	} {
		dir, root := place(t, there)
		_, err := Unpack(bytes.NewReader(c.archive), root, "in", c.as, c.most, c.refuse)
		switch {
		case c.want != nil && !errors.Is(err, c.want), c.fails && err == nil, !c.fails && c.want == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		}
		if c.wrote != "" {
			p := filepath.Join(dir, "in", c.wrote)
			info, err := os.Lstat(p)
			if err != nil || !info.Mode().IsRegular() || info.Size() != 3 {
				t.Errorf("%s: %v %v", c.name, info, err)
			}
		}
		if b, err := os.ReadFile(filepath.Join(dir, "../secret")); err != nil || string(b) != "secret" {
			t.Errorf("%s: the file beside it is %q, %v", c.name, b, err)
		}
		if l, err := os.ReadDir(filepath.Join(dir, "..")); err != nil || len(l) != 2 {
			t.Errorf("%s: there is something beside it: %v, %v", c.name, l, err)
		}
	}
}

// Whatever an archive says, nothing appears outside, and no more than allowed within.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}, tar.Header{Typeflag: tar.TypeReg, Name: "d/a", Size: 3}))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "../a", Size: 3}))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/"}, tar.Header{Typeflag: tar.TypeReg, Name: "l/a", Size: 3}))
	dir, root := place(f, map[string]string{"away": "-> .."})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = Unpack(bytes.NewReader(b), root, ".", "", 1<<10, false)
		if l, err := os.ReadDir(filepath.Join(dir, "..")); err != nil || len(l) != 2 {
			t.Fatalf("there is something beside it: %v, %v", l, err)
		}
		l, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 1 && l[0].Name() == "away" {
			return
		}
		if n, err := Usage(root, 1<<20); err != nil || n > 1<<10 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		for _, e := range l {
			if e.Name() != "away" {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A provider answers a copy of a directory with an archive of 2 KiB that says that it has a file of 1 TiB.
func TestAttackSparseCopy(t *testing.T) {
	t.Parallel()
	const records = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n24 GNU.sparse.name=huge\n37 GNU.sparse.realsize=1099511627776\n"
	const holes = "1\n0\n4\n"
	head := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "PaxHeaders/huge", Size: int64(len(records)), Mode: 0o644})[:512]
	head[156] = tar.TypeXHeader
	copy(head[148:156], "        ")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	pad := func(s string) []byte { return append([]byte(s), make([]byte, 512-len(s))...) }
	file := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "GNUSparseFile.0/huge", Size: 516, Mode: 0o644})
	evil := slices.Concat(head, pad(records), file[:512], pad(holes), pad("evil"), make([]byte, 1024))
	h, err := tar.NewReader(bytes.NewReader(evil)).Next()
	if err != nil || h.Size != 1<<40 {
		t.Fatalf("the attack is broken: %+v, %v", h, err)
	}
	dir, root := place(t, nil)
	if _, err := Unpack(bytes.NewReader(evil), root, ".", "", math.MaxInt64>>1, false); !errors.Is(err, ErrCopy) {
		t.Errorf("got %v, want ErrCopy", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "huge")); err == nil {
		t.Errorf("%d bytes were written", info.Size())
	}
}
