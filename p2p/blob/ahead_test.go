package blob

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/p2p/blob/pour"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/blob/swarm"
)

// files are two of 3 MiB, and a small one at the end.
var files = map[string][]byte{"a/first": noise(3 * mib), "b": noise(3*mib + 1), "last": []byte("last")}

// packed is the archive of files.
func packed(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	var buf bytes.Buffer
	if err := Pack(t.Context(), &buf, dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// whole checks that dir has all files.
func whole(t *testing.T, dir string) {
	t.Helper()
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// nothing checks that dir is empty.
func nothing(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%s has %v, %v", filepath.Base(dir), left, err)
	}
}

// halting is a source that sends 4 MiB, and the rest once a channel is closed.
func halting(data []byte, rest chan struct{}) *place {
	return &place{sized: int64(len(data)), r: func(offset int64) io.Reader {
		if offset > 0 {
			return bytes.NewReader(data[offset:])
		}
		n := min(4*mib, len(data))
		return io.MultiReader(bytes.NewReader(data[:n]), wait(rest), bytes.NewReader(data[n:]))
	}}
}

// wait is a reader that ends when a channel is closed.
type wait chan struct{}

func (w wait) Read([]byte) (int, error) { <-w; return 0, io.EOF }

// An archive is unpacked while it comes, in one stream or in chunks of several peers. It is whole with the end of its
// transfer: the stored blob is not read.
func TestUnpackAhead(t *testing.T) {
	t.Parallel()
	data := packed(t)
	for name, source := range map[string]func(rest chan struct{}) Source{
		"stream": func(rest chan struct{}) Source { return halting(data, rest) },
		"chunks": func(rest chan struct{}) Source {
			part := func(_ context.Context, offset int64, into []byte) error {
				if copy(into, data[offset:]); offset >= 4*mib {
					<-rest
				}
				return nil
			}
			return Swarm{Shared: &origin{data: data, part: part}, Fellows: []swarm.Supplier{&origin{data: data, part: part}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
				u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
				rest, came := make(chan struct{}), make(chan error, 1)
				go func() {
					_, err := s.Receive(t.Context(), source(rest), c, 1<<30, []string{"job"}, nil)
					came <- err
				}()
				until(dir)
				if s.Has(c) {
					t.Error("a part of the blob is in the store")
				}
				close(rest)
				if err := errors.Join(<-came, s.Remove(c)); err != nil {
					t.Fatal(err)
				}
				if n, err := u.Finish(); err != nil || n != 6*mib+1+2*EntryBytes {
					t.Errorf("%d bytes, %v", n, err)
				}
				if err := u.Close(); err != nil {
					t.Error(err)
				}
				whole(t, dir)
			})
		})
	}
}

// A large file goes past the page cache. It is whole, or the archive is refused and nothing stays.
func TestUnpackLargeFile(t *testing.T) {
	t.Parallel()
	large, dir := noise(pour.Direct+5), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), large, 0o644); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := Pack(t.Context(), &archive, dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "into")
	if err := Unpack(t.Context(), bytes.NewReader(archive.Bytes()), into, 1<<30); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(into, "large")); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, length := range []int{2048, 9 * mib, pour.Direct, pour.Direct + 512} {
		into := filepath.Join(t.TempDir(), "into")
		err := Unpack(t.Context(), bytes.NewReader(archive.Bytes()[:length]), into, 1<<30)
		if !errors.Is(err, ErrArchive) {
			t.Errorf("%d bytes of the archive: got %v, want ErrArchive", length, err)
		}
		nothing(t, into)
	}
	broken := io.MultiReader(bytes.NewReader(archive.Bytes()[:9*mib]), iotest.ErrReader(context.Canceled))
	if err := Unpack(t.Context(), broken, t.TempDir(), 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("the stream breaks off: %v", err)
	}
}

// until waits until the first file is in dir.
func until(dir string) {
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "a/first")); err == nil && bytes.Equal(data, files["a/first"]) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A blob that is there is unpacked by Finish. Of two callers one has it while it comes.
func TestUnpackAheadOfNothing(t *testing.T) {
	t.Parallel()
	data, s := packed(t), opened(t, 1<<30)
	c, one, two := Sum(data), filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	for _, have := range []bool{false, true} {
		u, v := s.UnpackAhead(t.Context(), c, one, 1<<30, ""), s.UnpackAhead(t.Context(), c, two, 1<<30, "")
		fresh, err := s.Receive(t.Context(), halting(data, closed()), c, 1<<30, nil, nil)
		if fresh == have || err != nil {
			t.Fatalf("fresh %v, %v", fresh, err)
		}
		for _, x := range []*Unpacking{u, v} {
			if _, err := x.Finish(); err != nil {
				t.Error(err)
			}
		}
		whole(t, one)
		whole(t, two)
		if err := errors.Join(remove.Empty(one), remove.Empty(two)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.UnpackAhead(t.Context(), Sum(nil), one, 1<<30, "").Finish(); !errors.Is(err, ErrNotFound) {
		t.Errorf("what nobody brought: %v", err)
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A transfer that breaks off leaves nothing in the directory. It is resumed, and the whole is unpacked then.
func TestUnpackAheadOfABreak(t *testing.T) {
	t.Parallel()
	data := packed(t)
	for _, again := range []bool{true, false} {
		s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
		u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
		p := &place{sized: int64(len(data)), r: func(int64) io.Reader {
			return io.MultiReader(bytes.NewReader(data[:4*mib]), readerOf(func() error {
				until(dir)
				return errCut
			}))
		}}
		if _, err := s.Receive(t.Context(), p, c, 1<<30, nil, nil); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if again {
			<-u.done
			nothing(t, dir)
			p.r = func(offset int64) io.Reader {
				if offset == 0 {
					t.Error("it was not resumed")
				}
				nothing(t, dir)
				return bytes.NewReader(data[offset:])
			}
			if _, err := s.Receive(t.Context(), p, c, 1<<30, nil, nil); err != nil {
				t.Fatal(err)
			}
			nothing(t, dir)
			if _, err := u.Finish(); err != nil {
				t.Fatal(err)
			}
			whole(t, dir)
		}
		if err := u.Close(); err != nil {
			t.Error(err)
		}
		if !again {
			nothing(t, dir)
		}
	}
}

// An archive that a directory needs alone is unpacked, and not stored, by a transfer for its holder. After a break it is
// stored, as it is for others.
func TestUnpackAlone(t *testing.T) {
	t.Parallel()
	data := packed(t)
	at := func(offset int64) io.Reader { return bytes.NewReader(data[offset:]) }
	for name, test := range map[string]struct {
		holder string
		cut    bool // the first transfer
		size   int64
		stored bool
	}{
		"alone":         {"job", false, int64(len(data)), false},
		"of no size":    {"job", false, -1, false},
		"after a break": {"job", true, int64(len(data)), true},
		"for another":   {"other", false, int64(len(data)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
			u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "job")
			p := &place{sized: test.size, r: at}
			if test.cut {
				p.r = func(int64) io.Reader { return io.MultiReader(bytes.NewReader(data[:4*mib]), iotest.ErrReader(errCut)) }
				if _, err := s.Receive(t.Context(), p, c, 1<<30, []string{test.holder}, nil); !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				p.r = at
			}
			if fresh, err := s.Receive(t.Context(), p, c, 1<<30, []string{test.holder}, nil); err != nil || !fresh {
				t.Fatalf("fresh %t, %v", fresh, err)
			}
			if s.Has(c) != test.stored || s.Brought(c, test.holder) != test.stored || s.Used() > 0 != test.stored {
				t.Errorf("stored %t, %d bytes, want %t", s.Has(c), s.Used(), test.stored)
			}
			if n, err := u.Finish(); err != nil || n != 6*mib+1+2*EntryBytes {
				t.Errorf("%d bytes, %v", n, err)
			}
			whole(t, dir)
			if left, err := os.ReadDir(s.path("partial")); err != nil || len(left) > 0 {
				t.Errorf("partial files: %v, %v", left, err)
			}
		})
	}
}

// A bad archive that a directory needs alone is refused for its own reason, and false bytes are not unpacked.
func TestAttackBadArchiveAlone(t *testing.T) {
	t.Parallel()
	bad, good := foreign(t, "../evil", 10), packed(t)
	flipped := bytes.Clone(good)
	flipped[5*mib]++
	for name, test := range map[string]struct {
		data, sent []byte
		max        int64
		come, want error
	}{
		"bad":   {bad, bad, 1 << 30, nil, ErrArchive},
		"large": {good, good, 4 * mib, nil, ErrTooLarge},
		"false": {good, flipped, 1 << 30, ErrDigest, ErrDigest},
	} {
		s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(test.data)
		u := s.UnpackAhead(t.Context(), c, dir, test.max, "job")
		p := halting(test.sent, closed())
		if _, err := s.Receive(t.Context(), p, c, 1<<30, []string{"job"}, nil); !errors.Is(err, test.come) {
			t.Errorf("%s: received: %v", name, err)
		}
		if _, err := u.Finish(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		nothing(t, dir)
		if s.Has(c) || s.Used() > 0 {
			t.Errorf("%s: %d bytes are stored", name, s.Used())
		}
	}
}

// readerOf is a reader of nothing but an error.
type readerOf func() error

func (r readerOf) Read([]byte) (int, error) { return 0, r() }

// A caller that gives up empties its directory, whether its archive came or not, and holds no transfer up.
func TestUnpackAheadIsGivenUp(t *testing.T) {
	t.Parallel()
	data, s := packed(t), opened(t, 1<<30)
	dir, c := filepath.Join(t.TempDir(), "dir"), Sum(data)
	ctx, cancel := context.WithCancel(t.Context())
	u := s.UnpackAhead(ctx, c, dir, 1<<30, "")
	rest, came := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Receive(t.Context(), halting(data, rest), c, 1<<30, nil, nil)
		came <- err
	}()
	until(dir)
	cancel()
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	nothing(t, dir)
	close(rest)
	if err := <-came; err != nil || !s.Has(c) {
		t.Errorf("the transfer of another: %v", err)
	}
	if err := s.Remove(c); err != nil {
		t.Fatal(err)
	}
	u = s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
	if _, err := s.Receive(t.Context(), halting(data, closed()), c, 1<<30, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := u.Close(); err != nil { // its caller may not have the blob, for example
		t.Error(err)
	}
	nothing(t, dir)
}

// A source sends other bytes than the blob's, from the middle on or all of them, and as a good archive or a bad one.
// Nothing of them stays, and an honest source then brings the files.
func TestAttackLieUnpackedAhead(t *testing.T) {
	t.Parallel()
	data := packed(t)
	flipped := bytes.Clone(data)
	flipped[4*mib]++
	broken := bytes.Clone(data)
	clear(broken[3*mib+mib/2:])
	long := append(bytes.Clone(data), "more"...)
	for name, lie := range map[string][]byte{
		"a byte": flipped, "no archive from the middle on": broken, "longer": long, "shorter": data[:5*mib],
		"another archive": foreign(t, "evil", 4*mib), "a bad name": foreign(t, "../evil", 4*mib),
		"empty": make([]byte, 1024),
	} {
		for _, in := range []string{"stream", "chunks"} {
			s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
			u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
			var from Source = &place{sized: int64(len(lie)), r: func(int64) io.Reader { return bytes.NewReader(lie) }}
			if in == "chunks" {
				from = Swarm{Shared: &origin{data: lie}, Fellows: []swarm.Supplier{&origin{data: lie}}}
			}
			if _, err := s.Receive(t.Context(), from, c, 1<<30, nil, nil); !errors.Is(err, ErrDigest) || s.Has(c) {
				t.Fatalf("%s in %s: %v", name, in, err)
			}
			<-u.done
			nothing(t, dir)
			if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
				t.Errorf("%s in %s: wrote outside", name, in)
			}
			if _, err := s.Receive(t.Context(), halting(data, closed()), c, 1<<30, nil, nil); err != nil {
				t.Fatalf("%s in %s: %v", name, in, err)
			}
			if _, err := u.Finish(); err != nil {
				t.Errorf("%s in %s: %v", name, in, err)
			}
			whole(t, dir)
		}
	}
}

// foreign is an archive with one file.
func foreign(t *testing.T, name string, size int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	h := Header(name)
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, int64(size), 0o644
	err := w.WriteHeader(h)
	if err == nil {
		_, err = w.Write(noise(size))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// An earlier transfer broke off where an archive in the archive begins. The rest alone is not unpacked.
func TestAttackArchiveInTheRest(t *testing.T) {
	t.Parallel()
	first := packed(t)
	first = append(first, make([]byte, 4096-len(first)%4096)...)
	data := append(bytes.Clone(first), foreign(t, "evil", mib)...)
	s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
	p := &place{sized: int64(len(data)), r: func(int64) io.Reader { return io.MultiReader(bytes.NewReader(first), cut{}) }}
	if _, err := s.Receive(t.Context(), p, c, 1<<30, nil, nil); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
	p.r = func(offset int64) io.Reader { return bytes.NewReader(data[offset:]) }
	if _, err := s.Receive(t.Context(), p, c, 1<<30, nil, nil); err != nil || p.asked[1] != int64(len(first)) {
		t.Fatalf("asked from %v, %v", p.asked, err)
	}
	if _, err := u.Finish(); err != nil {
		t.Error(err)
	}
	whole(t, dir)
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Error("the rest was unpacked")
	}
}

// A fellow sends false chunks from the middle on. They are found out before they are unpacked.
func TestAttackFalseChunkUnpackedAhead(t *testing.T) {
	t.Parallel()
	data := packed(t)
	s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
	u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
	poisoned := &origin{data: data, part: func(_ context.Context, offset int64, into []byte) error {
		if copy(into, data[offset:]); offset >= 3*mib {
			clear(into)
		}
		return nil
	}}
	receives(t, s, Swarm{Shared: &origin{data: data}, Fellows: []swarm.Supplier{poisoned}, Turn: 1}, c, data)
	if err := s.Remove(c); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(); err != nil { // from the transfer
		t.Error(err)
	}
	whole(t, dir)
}

// Finish returns the same error for a bad or too large archive as Unpack. The transfer of the archive does not stop.
func TestAttackBadArchiveAhead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		data []byte
		max  int64
		want error
	}{
		"a bad name first": {append(foreign(t, "../evil", 10), noise(20*mib)...), 1 << 30, ErrArchive},
		"too large":        {packed(t), 4 * mib, ErrTooLarge},
		"a bad end":        {append(packed(t)[:6*mib], noise(4*mib)...), 1 << 30, ErrArchive},
		"cut short":        {packed(t)[:5*mib], 1 << 30, ErrArchive},
	} {
		s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(test.data)
		u := s.UnpackAhead(t.Context(), c, dir, test.max, "")
		if _, err := s.Receive(t.Context(), halting(test.data, closed()), c, 1<<30, nil, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := u.Finish(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		nothing(t, dir)
	}
	// The rest after the end of an archive is part of the blob, and not of the files.
	data := append(packed(t), noise(mib)...)
	s, dir, c := opened(t, 1<<30), filepath.Join(t.TempDir(), "dir"), Sum(data)
	u := s.UnpackAhead(t.Context(), c, dir, 1<<30, "")
	if _, err := s.Receive(t.Context(), halting(data, closed()), c, 1<<30, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(); err != nil {
		t.Error(err)
	}
	whole(t, dir)
}
