package blob_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/p2p/blob"
)

// An archive that was packed passes, and counts as much as it does unpacked.
func TestCheckTree(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), open(t, plenty)
	for _, name := range []string{"a", "a.b", "a-/x", "b/c/d", "b/c.d", "b c/e", "ä/世"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(name, 1000)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := s.PutTree(t.Context(), dir, plenty)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.CheckTree(t.Context(), tree.CID, plenty)
	if err != nil || n != tree.Unpacked {
		t.Errorf("%d bytes, %v; want %d", n, err, tree.Unpacked)
	}
	if _, err := s.CheckTree(t.Context(), tree.CID, tree.Unpacked-1); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("into too little room: %v", err)
	}
	if m, err := s.Unpack(t.Context(), tree.CID, filepath.Join(t.TempDir(), "x"), n); err != nil || m != n {
		t.Errorf("unpacked %d bytes, %v; want %d", m, err, n)
	}
	if _, err := s.CheckTree(t.Context(), blob.Sum([]byte("absent")), plenty); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("an absent one: %v", err)
	}
}

// An archive that could not be unpacked, or not everywhere, does not pass.
func TestAttackCheckTree(t *testing.T) {
	t.Parallel()
	s := open(t, plenty)
	dir := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1} }
	for name, all := range map[string][]*tar.Header{
		"twice":           {file("a"), file("a")},
		"twice, later":    {file("a"), file("b"), file("a")},
		"folder twice":    {dir("a/"), dir("a/")},
		"beneath a file":  {file("a"), file("a/b")},
		"file as folder":  {dir("a/"), file("a/b"), file("a")},
		"implied folder":  {file("a/b")},
		"closed folder":   {dir("a/"), dir("b/"), file("a/x")},
		"order":           {file("b"), file("a")},
		"absolute":        {file("/a")},
		"above":           {file("../a")},
		"backslash":       {file(`a\b`)},
		"link":            {{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}},
		"hard link":       {file("a"), {Typeflag: tar.TypeLink, Name: "b", Linkname: "a"}},
		"device":          {{Typeflag: tar.TypeChar, Name: "a"}},
		"pipe":            {{Typeflag: tar.TypeFifo, Name: "a"}},
		"long name":       {file(strings.Repeat("a", 256))},
		"too many folder": {dir(strings.Repeat("a/", 129))},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range all {
			h.Format = tar.FormatPAX
			if err := w.WriteHeader(h); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if h.Size > 0 {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		c, _, err := s.Put(t.Context(), &buf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CheckTree(t.Context(), c, plenty); !errors.Is(err, blob.ErrArchive) {
			t.Errorf("%s: %v, want ErrArchive", name, err)
		}
	}
	for name, content := range map[string]string{"no archive": strings.Repeat("junk", 1000), "cut": string(folders(t, "a/"))[:300]} {
		c, _, err := s.Put(t.Context(), strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CheckTree(t.Context(), c, plenty); !errors.Is(err, blob.ErrArchive) {
			t.Errorf("%s: %v, want ErrArchive", name, err)
		}
	}
}
