package blob_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// folders is an archive of folders with these names.
func folders(t *testing.T, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// An archive of 197 KiB with one entry would make 100,000 folders that nobody can remove any more.
func TestAttackDeepArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := folders(t, strings.Repeat("a/", 100_000))
	began := time.Now()
	if err := blob.Unpack(t.Context(), bytes.NewReader(data), dir, plenty); !errors.Is(err, blob.ErrArchive) {
		t.Errorf("%d KiB: got %v after %v, want ErrArchive", len(data)>>10, err, time.Since(began))
	}
	empty(t, dir)
	if err := blob.Unpack(t.Context(), bytes.NewReader(folders(t, strings.Repeat("a/", 128))), dir, plenty); err != nil {
		t.Errorf("128 folders in each other: %v", err)
	}
	if err := remove.All(dir); err != nil {
		t.Error(err)
	}
}

// Folders have no content, and yet each takes room on the disk: also those that only the names of others imply.
func TestAttackFolderFlood(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint(i)+strings.Repeat("/a", 100)+"/")
	}
	data := folders(t, names...)
	dir := t.TempDir()
	if err := blob.Unpack(t.Context(), bytes.NewReader(data), dir, 1<<20); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("101,000 folders by %d KiB into 1 MiB: got %v, want ErrTooLarge", len(data)>>10, err)
	}
	empty(t, dir)
	if err := blob.Unpack(t.Context(), bytes.NewReader(folders(t, names[:2]...)), dir, 202*blob.EntryBytes); err != nil {
		t.Errorf("202 folders into room for 202: %v", err)
	}

}

// Unpacking ends with the lease that it is for.
func TestAttackSlowArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	data := bytes.NewReader(folders(t, "a/", "b/", "c/"))
	err := blob.Unpack(ctx, readerFunc(func(p []byte) (int, error) {
		if data.Len() < 1500 {
			cancel()
		}
		return data.Read(p[:min(len(p), 512)])
	}), dir, plenty)
	if !errors.Is(err, context.Canceled) || errors.Is(err, blob.ErrArchive) {
		t.Errorf("got %v, want the context's error", err)
	}
	empty(t, dir)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// chain makes folders in each other below dir, and closes some to everybody.
func chain(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 200)
	for i := range depth {
		if err := at.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := at.WriteFile("file", []byte("x"), 0o400); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			if err := errors.Join(at.Symlink("/etc", "link"), at.Chmod(name, 0)); err != nil {
				t.Fatal(err)
			}
		}
		at.Close()
		at = next
	}
	at.Close()
}

// A program's folders in each other are not followed without end when its output is stored.
func TestAttackDeepOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	chain(t, dir, 200)
	s := open(t, plenty)
	if _, err := s.PutTree(t.Context(), dir, plenty); !errors.Is(err, blob.ErrTree) || s.Used() != 0 {
		t.Errorf("got %v, want ErrTree; %d bytes in use", err, s.Used())
	}
	if err := remove.All(dir); err != nil {
		t.Error(err)
	}
}

// Sparse files take some KiB of a lease's disk, and their whole length of the store's.
func TestAttackSparseOutput(t *testing.T) {
	t.Parallel()
	const disk = 256 << 20
	dir := t.TempDir()
	s := open(t, plenty)
	for i := range 8 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(disk), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutTree(t.Context(), dir, disk-1); !errors.Is(err, blob.ErrTooLarge) || s.Used() != 0 {
		t.Errorf("got %v, want ErrTooLarge; %d bytes in use", err, s.Used())
	}
	small := t.TempDir()
	if err := os.WriteFile(filepath.Join(small, "file"), random(1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.PutTree(t.Context(), small, 1<<20); err != nil || got.Unpacked != 1<<20 {
		t.Errorf("what fits exactly: %v, took %d", err, got.Unpacked)
	}
}

// Who brought a blob is known as long as it is there, also to the next process, and of few at a time.
func TestHolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := blob.OpenStore(dir, plenty)
	if err != nil {
		t.Fatal(err)
	}
	c := put(t, s, []byte("x"))
	for i := range 300 {
		for range 2 {
			if err := s.Bring(c, fmt.Sprint("peer ", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s, err = blob.OpenStore(dir, plenty); err != nil {
		t.Fatal(err)
	}
	if s.Brought(c, "peer 0") || !s.Brought(c, "peer 299") || !s.Brought(c, "peer 100") || s.Brought(c, "peer") {
		t.Error("not those who brought it last")
	}
	if err := s.Bring(c, "a\nb"); err == nil {
		t.Error("two words were taken for one")
	}
	if err := s.Remove(c); err != nil {
		t.Fatal(err)
	}
	put(t, s, []byte("x"))
	if s.Brought(c, "peer 299") {
		t.Error("a blob that was removed has who brought it")
	}
}

// A peer breaks off every transfer shortly before its end. What came counts for the store, makes room for what is whole, and is
// removed after an hour.
func TestAttackPartials(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	dir := t.TempDir()
	to, err := blob.OpenStore(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	hosts[1].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
		_, _ = s.Read(make([]byte, 256))
		// A head with size 400, the length 400, and 399 bytes.
		_, _ = s.Write(append([]byte{0, 100, 0, 0, 0, 3, 0x08, 0x90, 0x03, 0, 0, 0, 0, 0, 0, 1, 0x90}, make([]byte, 399)...))
		_ = s.Close()
	})
	p2ptest.ConnectAll(t, hosts...)
	sizes := func() (n int64) {
		there, err := os.ReadDir(filepath.Join(dir, "partial"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range there {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for i := range 5 {
		err := blob.Fetch(t.Context(), hosts[0], p2ptest.Network, hosts[1].ID(), blob.Sum([]byte{byte(i)}), 1000, to, nil)
		if !errors.Is(err, stream.ErrUnreachable) {
			t.Fatalf("got %v, want ErrUnreachable", err)
		}
	}
	if n := sizes(); n == 0 || n > 1000 {
		t.Errorf("%d bytes of a store of 1000 are what broke off", n)
	}
	if to, err = blob.OpenStore(dir, 1000); err != nil { // a restart forgets nothing of that
		t.Fatal(err)
	}
	put(t, to, random(900))
	if n := sizes(); n > 100 {
		t.Errorf("%d bytes are left beside 900 of 1000", n)
	}
	if _, err = blob.OpenStore(dir, 2000); err != nil {
		t.Fatal(err)
	}
	c := blob.Sum([]byte("old"))
	old := filepath.Join(dir, "partial", c.String())
	if err := errors.Join(os.WriteFile(old, random(10), 0o600), os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	if to, err = blob.OpenStore(dir, 2000); err != nil || sizes() != 0 || to.Used() != 900 {
		t.Errorf("an old one is left: %d bytes, %v", sizes(), err)
	}
}
