package blob_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob"
)

const plenty = 1 << 30

func open(t testing.TB, max int64) *blob.Store {
	t.Helper()
	s, err := blob.OpenStore(t.TempDir(), max)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, s *blob.Store, data []byte) cid.Cid {
	t.Helper()
	c, n, err := s.Put(t.Context(), bytes.NewReader(data))
	if err != nil || n != int64(len(data)) || c != blob.Sum(data) {
		t.Fatalf("put %d bytes as %s: %v", n, c, err)
	}
	return c
}

func read(t testing.TB, s *blob.Store, c cid.Cid) []byte {
	t.Helper()
	f, err := s.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(data)
	return data
}

// empty checks that nothing half-written is left.
func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%s holds %v, %v", dir, left, err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := blob.OpenStore(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	// The CID that any other implementation computes for these bytes.
	hello := put(t, s, []byte("hello\n"))
	if hello.String() != "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am" {
		t.Errorf("CID %s", hello)
	}
	if c, err := blob.Parse(hello.String()); err != nil || c != hello {
		t.Errorf("parsed %s: %v", c, err)
	}
	put(t, s, []byte("hello\n"))
	if s.Used() != 6 {
		t.Errorf("%d bytes in use after the same blob twice, want 6", s.Used())
	}
	if string(read(t, s, hello)) != "hello\n" {
		t.Error("read something else")
	}
	if _, _, err := s.Put(t.Context(), bytes.NewReader(make([]byte, 995))); !errors.Is(err, blob.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	broken := errors.New("broken")
	if _, _, err := s.Put(t.Context(), io.MultiReader(strings.NewReader("x"), errReader{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Put(cancelled, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	empty(t, filepath.Join(dir, "tmp"))
	if s.Used() != 6 {
		t.Errorf("%d bytes in use after failures, want 6", s.Used())
	}
	again, err := blob.OpenStore(dir, 1000)
	if err != nil || again.Used() != 6 || !again.Has(hello) {
		t.Fatalf("opened again: %v, %d bytes in use", err, again.Used())
	}
	for range 2 {
		if err := again.Remove(hello); err != nil {
			t.Error(err)
		}
	}
	if _, err := again.Open(hello); !errors.Is(err, blob.ErrNotFound) || again.Used() != 0 {
		t.Errorf("after removal: %v, %d bytes in use", err, again.Used())
	}
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, e.error }

func TestBadCID(t *testing.T) {
	t.Parallel()
	s := open(t, plenty)
	for _, text := range []string{"", "x", "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnufi", "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", "../../etc/passwd"} {
		if c, err := blob.Parse(text); !errors.Is(err, blob.ErrBadCID) {
			t.Errorf("%q: got %v, %v", text, c, err)
		} else if _, err := s.Open(c); !errors.Is(err, blob.ErrBadCID) {
			t.Errorf("%q opened: %v", text, err)
		}
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	s := open(t, plenty)
	make := func(order []string) string {
		dir := t.TempDir()
		for _, name := range order {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			mode := fs.FileMode(0o600)
			if strings.HasSuffix(name, ".sh") {
				mode = 0o755
			}
			if err := os.WriteFile(path, []byte("content of "+name), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, "empty"), 0o777); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	names := []string{"a", "b/c/d", "b/e.sh", "ö and space"}
	first, err := s.PutTree(t.Context(), make(names), plenty)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.PutTree(t.Context(), make([]string{names[3], names[1], names[2], names[0]}), plenty)
	if err != nil || first != second {
		t.Fatalf("equal folders became %s and %s: %v", first.CID, second.CID, err)
	}
	out := filepath.Join(t.TempDir(), "new", "folder")
	if _, err := s.Unpack(t.Context(), first.CID, out, plenty); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got, err := os.ReadFile(filepath.Join(out, name)); string(got) != "content of "+name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "b/e.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the script is not executable: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "empty")); err != nil {
		t.Error(err)
	}
	if third, err := s.PutTree(t.Context(), out, plenty); err != nil || third != first {
		t.Errorf("unpacked and packed again became %s: %v", third.CID, err)
	}
	if _, err := s.Unpack(t.Context(), first.CID, out, plenty); err == nil {
		t.Error("unpacked into a folder that is not empty")
	}
	small := t.TempDir()
	if _, err := s.Unpack(t.Context(), first.CID, small, 20); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	empty(t, small)
	linked := make(names[:1])
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTree(t.Context(), linked, plenty); !errors.Is(err, blob.ErrTree) {
		t.Errorf("got %v, want ErrTree", err)
	}
	if _, err := s.PutTree(t.Context(), filepath.Join(linked, "missing"), plenty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

// A link to a file of the same folder is stored as that file; any other is refused.
func TestPutTreeFollowsLinksInside(t *testing.T) {
	t.Parallel()
	s := open(t, plenty)
	dir, out := t.TempDir(), t.TempDir()
	write := func(name, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(write("blobs/1", "weights"), os.MkdirAll(filepath.Join(dir, "snapshots/main"), 0o755),
		os.Symlink("../../blobs/1", filepath.Join(dir, "snapshots/main/model")), os.Symlink("snapshots/main/model", filepath.Join(dir, "twice"))); err != nil {
		t.Fatal(err)
	}
	tree, err := s.PutTree(t.Context(), dir, plenty)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unpack(t.Context(), tree.CID, out, plenty); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"blobs/1", "snapshots/main/model", "twice"} {
		if i, err := os.Lstat(filepath.Join(out, name)); err != nil || !i.Mode().IsRegular() || i.Size() != int64(len("weights")) {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
	if _, err := s.PutTree(t.Context(), filepath.Join(dir, "snapshots"), plenty); !errors.Is(err, blob.ErrTree) || !strings.Contains(err.Error(), "main/model: symbolic link to \"../../blobs/1\"") {
		t.Errorf("a link out of the folder: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"blobs", ".", "bad", "nowhere", filepath.Join(dir, "blobs/1"), "/etc/passwd", "pipe"} {
		at := filepath.Join(dir, "bad")
		if err := errors.Join(os.RemoveAll(at), os.Symlink(to, at)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutTree(t.Context(), dir, plenty); !errors.Is(err, blob.ErrTree) ||
			!strings.Contains(err.Error(), fmt.Sprintf("bad: symbolic link to %q: want a relative link", to)) || !strings.Contains(err.Error(), "cp -rL") {
			t.Errorf("a link to %s: %v", to, err)
		}
	}
}

// archive makes a tar of entries, with content for the regular ones.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, plenty)
	reg := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	for name, data := range map[string][]byte{
		"parent":          archive(t, reg("../evil")),
		"hidden parent":   archive(t, reg("a/../../evil")),
		"absolute":        archive(t, reg("/tmp/evil")),
		"backslash":       archive(t, reg(`..\evil`)),
		"dot":             archive(t, reg("./evil")),
		"empty part":      archive(t, reg("a//evil")),
		"symlink":         archive(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc"}, reg("l/evil")),
		"hard link":       archive(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}),
		"device":          archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3}),
		"fifo":            archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "f"}),
		"twice":           archive(t, reg("a"), reg("a")),
		"file as folder":  archive(t, reg("a"), reg("a/b")),
		"not an archive":  []byte(strings.Repeat("garbage", 1000)),
		"cut in the head": archive(t, reg("a"))[:300],
		"cut in the body": archive(t, reg("a"))[:514],
	} {
		dir := t.TempDir()
		if _, err := s.Unpack(t.Context(), put(t, s, data), dir, plenty); !errors.Is(err, blob.ErrArchive) {
			t.Errorf("%s: got %v, want ErrArchive", name, err)
		}
		empty(t, dir)
		if _, err := ahead(t, data, dir, plenty); !errors.Is(err, blob.ErrArchive) {
			t.Errorf("%s, while it comes: got %v, want ErrArchive", name, err)
		}
		empty(t, dir)
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
			t.Errorf("%s: wrote outside", name)
		}
	}
}

// ahead unpacks data into dir while a new store receives it.
func ahead(t testing.TB, data []byte, dir string, max int64) (int64, error) {
	t.Helper()
	s, c := open(t, plenty), blob.Sum(data)
	u := s.UnpackAhead(t.Context(), c, dir, max, "")
	if _, err := s.Receive(t.Context(), sent(data), c, plenty, nil, nil); err != nil {
		t.Fatal(err)
	}
	n, err := u.Finish()
	return n, errors.Join(err, u.Close())
}

// sent is a source of its bytes.
type sent []byte

func (b sent) Open(_ context.Context, _ cid.Cid, offset, _ int64) (io.ReadCloser, int64, error) {
	return io.NopCloser(bytes.NewReader(b[offset:])), int64(len(b)), nil
}

// FuzzUnpack: whatever the archive, nothing lands outside the folder, and a refused one leaves nothing in
// it; an accepted one packs and unpacks to the same.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Mode: 0o755}))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "../evil"}))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := open(t, plenty)
		base := t.TempDir()
		dir := filepath.Join(base, "in")
		_, err := s.Unpack(t.Context(), put(t, s, data), dir, 1<<20)
		coming := filepath.Join(base, "ahead")
		_, same := ahead(t, data, coming, 1<<20)
		if there, _ := os.ReadDir(base); len(there) != 2 {
			t.Fatalf("outside the folder: %v", there)
		}
		if (err == nil) != (same == nil) {
			t.Fatalf("%v, and %v while it comes", err, same)
		}
		if err != nil {
			empty(t, dir)
			empty(t, coming)
			return
		}
		first, err := s.PutTree(t.Context(), dir, plenty)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := s.PutTree(t.Context(), coming, plenty); err != nil || second != first {
			t.Fatalf("%s is %s while it comes: %v", first.CID, second.CID, err)
		}
		again := filepath.Join(base, "again")
		if _, err := s.Unpack(t.Context(), first.CID, again, 1<<20); err != nil {
			t.Fatal(err)
		}
		if second, err := s.PutTree(t.Context(), again, plenty); err != nil || second != first {
			t.Fatalf("%s became %s: %v", first.CID, second.CID, err)
		}
	})
}

// FuzzParse: what parses prints and parses to the same.
func FuzzParse(f *testing.F) {
	f.Add("bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am")
	f.Add("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnufi")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := blob.Parse(text)
		if err != nil {
			return
		}
		if again, err := blob.Parse(c.String()); err != nil || again != c {
			t.Fatalf("%s became %s: %v", c, again, err)
		}
	})
}
