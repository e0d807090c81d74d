package files

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// An archive that comes from its buyer's peer, with a fellow beside it or alone, is unpacked before it is stored. A
// second buyer who only names it gets nothing.
func TestObtainUnpacksAhead(t *testing.T) {
	t.Parallel()
	w := newTeam(t, 8)
	src, want := t.TempDir(), content(6<<20)
	if err := os.WriteFile(filepath.Join(src, "model"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	var pack bytes.Buffer
	if err := blob.Pack(t.Context(), &pack, src, 1<<30); err != nil {
		t.Fatal(err)
	}
	c := w.put(buyer, pack.Bytes(), first, second)
	w.joins(first, c)
	for at, fellows := range map[int][]int{first: nil, second: {first}} {
		if at == second {
			w.joins(second, c)
		}
		dir := filepath.Join(t.TempDir(), "dir")
		u := w.stores[at].UnpackAhead(t.Context(), c, dir, 1<<30, "")
		if err := w.obtain(at, buyer, c, fellows...); err != nil {
			t.Fatal(err)
		}
		if err := w.stores[at].Remove(c); err != nil { // it is not read again
			t.Fatal(err)
		}
		if _, err := u.Finish(); err != nil {
			t.Errorf("at peer %d: %v", at, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "model")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("at peer %d: %d bytes, %v", at, len(got), err)
		}
	}
	dir := filepath.Join(t.TempDir(), "dir")
	u := w.stores[first].UnpackAhead(t.Context(), c, dir, 1<<30, "")
	if err := w.obtain(first, buyer, c); err != nil { // for the buyer's job
		t.Fatal(err)
	}
	if err := w.files[first].Obtain(t.Context(), workload.Places{Peer: w.id(spy)}, c, 1<<30); err == nil {
		t.Error("a peer that has only the CID brought the archive")
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it has %v, %v", left, err)
	}
}
