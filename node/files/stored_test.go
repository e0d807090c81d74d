package files

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob"
)

// A cleaning removes what nothing needs and nobody used lately, and a dry run nothing.
func TestClean(t *testing.T) {
	t.Parallel()
	store, err := blob.OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Blobs: store, Log: slog.New(slog.DiscardHandler)})
	put := func(key, content string, age time.Duration) cid.Cid {
		text, _, err := f.PutBlob(t.Context(), key, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		c := cid.MustParse(text)
		path, err := store.Path(c)
		if err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		return c
	}
	job, leased := put("", "job", time.Hour), put("one", "leased", time.Hour)
	old, fresh := put("one", "old and large", time.Hour), put("", "fresh", time.Minute)
	f.Serve(user{job})
	f.Need("lease", func() (map[cid.Cid]bool, error) { return map[cid.Cid]bool{leased: true}, nil })
	all, err := f.Stored()
	if err != nil || len(all) != 4 || all[0].CID != old.String() || len(all[0].Needed) > 0 || all[0].Holders[0] != "key one" {
		t.Fatalf("%v, %v", all, err)
	}
	for _, b := range all {
		want := map[string]string{job.String(): NeedJob, leased.String(): "lease"}[b.CID]
		if strings.Join(b.Needed, " ") != want {
			t.Errorf("%s is needed by %q, want %q", b.CID, b.Needed, want)
		}
	}
	for _, dry := range []bool{true, false} {
		gone, err := f.Clean(dry)
		left, lerr := store.List() // and not Has, which is a use
		if err != nil || lerr != nil || len(gone) != 1 || gone[0].CID != old.String() || (len(left) == 4) != dry {
			t.Errorf("dry %v: removed %v, %v; %d are left", dry, gone, err, len(left))
		}
	}
	for _, c := range []cid.Cid{job, leased, fresh} {
		if !store.Has(c) {
			t.Errorf("%s was removed", c)
		}
	}
	if gone, err := f.Clean(false); err != nil || gone == nil || len(gone) != 0 {
		t.Errorf("again: %v, %v", gone, err)
	}
}
