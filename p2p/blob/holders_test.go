package blob_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/p2p/blob"
)

// TestBringAfterACrash: a line that a crash cut is no holder, and does not swallow the next one.
func TestBringAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := blob.OpenStore(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.Put(t.Context(), bytes.NewReader([]byte("content")))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bring(c, "alice"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "holders", c.String())
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("bo"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = blob.OpenStore(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Bring(c, "carol"); err != nil {
		t.Fatal(err)
	}
	for holder, want := range map[string]bool{"alice": true, "carol": true, "bo": false, "bocarol": false} {
		if got := s.Brought(c, holder); got != want {
			t.Errorf("%s brought it: %v", holder, got)
		}
	}
}
