package files

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	g := newGrants()
	id := func(i int) cid.Cid { return blob.Sum([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) }
	for i := range maxGrants + 1000 {
		g.add("peer", id(i))
	}
	last := id(maxGrants + 999)
	if len(g.m) > maxGrants || !g.allowed("peer", last) || g.allowed("peer", id(0)) || g.allowed("other", last) {
		t.Errorf("%d grants are kept", len(g.m))
	}
}

// A grant that is used stays, however many others follow.
func TestGrantsInUse(t *testing.T) {
	t.Parallel()
	g := newGrants()
	used := blob.Sum([]byte("used"))
	g.add("peer", used)
	for i := range 3 * maxGrants {
		if i%(maxGrants/4) == 0 && !g.allowed("peer", used) {
			t.Fatalf("forgotten after %d others", i)
		}
		g.add("peer", blob.Sum([]byte{byte(i), byte(i >> 8), byte(i >> 16)}))
	}
}

// user is a user with two API keys, one of which has a job that needs a file.
type user struct{ job cid.Cid }

func (u user) Holds(key string, c cid.Cid) bool { return key == "one" && c == u.job }
func (u user) Uses(c cid.Cid) bool              { return c == u.job }

func TestKeysReadTheirFiles(t *testing.T) {
	t.Parallel()
	store, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Blobs: store, Log: slog.New(slog.DiscardHandler)})
	put := func(key, content string) cid.Cid {
		text, size, err := f.PutBlob(t.Context(), key, strings.NewReader(content))
		if err != nil || size != int64(len(content)) {
			t.Fatalf("%d bytes, %v", size, err)
		}
		return cid.MustParse(text)
	}
	job, other := put("one", "job"), put("", "other")
	f.Serve(user{job})
	for _, c := range []struct {
		key  string
		of   cid.Cid
		want error
	}{{"", job, nil}, {"", other, nil}, {"one", job, nil}, {"one", other, blob.ErrNotFound}, {"two", job, blob.ErrNotFound}} {
		r, _, err := f.OpenBlob(c.key, c.of.String())
		if !errors.Is(err, c.want) {
			t.Errorf("key %q: %v, want %v", c.key, err, c.want)
		}
		if err == nil {
			if _, err := io.ReadAll(r); err != nil {
				t.Error(err)
			}
			r.Close()
		}
	}
	if !f.Uploaded("one", job) || f.Uploaded("two", job) || f.Uploaded("one", other) {
		t.Error("the wrong key is taken for the one that uploaded a file")
	}
	if _, _, err := f.OpenBlob("", "x"); err == nil {
		t.Error("no CID is read")
	}
	f.Drop(job)
	f.Drop(other)
	if !store.Has(job) || store.Has(other) {
		t.Errorf("of a job: %t, of none: %t", store.Has(job), store.Has(other))
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	f, a, b, broken := New(Config{}), blob.Sum([]byte("a")), blob.Sum([]byte("b")), errors.New("journal")
	own := map[cid.Cid]bool{a: true}
	f.Need("job", func() (map[cid.Cid]bool, error) { return own, nil })
	f.Need("job", func() (map[cid.Cid]bool, error) { return map[cid.Cid]bool{b: true}, nil })
	if got, err := f.needed(); err != nil || !maps.Equal(got, map[cid.Cid]bool{a: true, b: true}) || len(own) != 1 {
		t.Errorf("needed %v, %v", got, err)
	}
	f.Need("job", func() (map[cid.Cid]bool, error) { return nil, broken })
	if _, err := f.needed(); !errors.Is(err, broken) { // or files of that room would be removed
		t.Errorf("got %v", err)
	}
}

// Freed are files that neither a job nor another room needs; those that are not here count for nothing.
func TestFree(t *testing.T) {
	t.Parallel()
	store, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Blobs: store, Log: slog.New(slog.DiscardHandler)})
	put := func(content string) cid.Cid {
		c, _, err := store.Put(t.Context(), strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	job, sold, old := put("of a job"), put("of a lease"), put("left over")
	f.Serve(user{job})
	f.Need("job", func() (map[cid.Cid]bool, error) { return map[cid.Cid]bool{sold: true}, nil })
	n, err := f.Free([]cid.Cid{job, old, blob.Sum([]byte("not here")), sold, old})
	if err != nil || n != int64(len("left over")) {
		t.Errorf("%d bytes, %v", n, err)
	}
	for c, stays := range map[cid.Cid]bool{job: true, sold: true, old: false} {
		if _, err := store.Size(c); (err == nil) != stays {
			t.Errorf("%s stays: %v, want %v", c, err == nil, stays)
		}
	}
	broken := errors.New("no list")
	f.Need("job", func() (map[cid.Cid]bool, error) { return nil, broken })
	if _, err := f.Free([]cid.Cid{sold}); !errors.Is(err, broken) {
		t.Errorf("without a list of the needed ones: %v", err)
	}
}
