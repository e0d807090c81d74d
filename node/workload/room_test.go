package workload

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
)

type fixture struct {
	t     *testing.T
	store *blob.Store
	stage Stage
}

func setup(t *testing.T) fixture {
	t.Helper()
	st, err := blob.OpenStore(filepath.Join(t.TempDir(), "blobs"), 1<<26)
	if err != nil {
		t.Fatal(err)
	}
	return fixture{t, st, Stage{Dir: filepath.Join(t.TempDir(), "stage")}}
}

// file stores content.
func (f fixture) file(content string) *nodepb.Blob {
	f.t.Helper()
	c, n, err := f.store.Put(f.t.Context(), strings.NewReader(content))
	if err != nil {
		f.t.Fatal(err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)}
}

func (f fixture) prepare(w *nodepb.Workload, room int64) ([]runtime.Mount, error) {
	fetched := func(_ context.Context, _ peer.ID, c cid.Cid, _ int64) error {
		if !f.store.Has(c) {
			return blob.ErrNotFound
		}
		return nil
	}
	return f.stage.Prepare(f.t.Context(), w, "", f.store, fetched, room)
}

// The disk that a lease has bounds what is fetched and unpacked, whatever the buyer says of its sizes.
func TestPrepareRoom(t *testing.T) {
	t.Parallel()
	f := setup(t)
	big := f.file(strings.Repeat("x", 3000))
	lying := &nodepb.Blob{Cid: big.Cid, Size: 1}
	for name, in := range map[string][]*nodepb.Input{
		"one":      {{Blob: big, Path: "/data/a"}},
		"a liar's": {{Blob: lying, Path: "/data/a"}},
		"several":  {{Blob: f.file(strings.Repeat("y", 1500)), Path: "/data/a"}, {Blob: f.file(strings.Repeat("z", 1500)), Path: "/data/b"}},
	} {
		if _, err := f.prepare(&nodepb.Workload{Inputs: in}, 2000); !errors.Is(err, ErrWorkload) || !strings.Contains(err.Error(), "of disk") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.prepare(&nodepb.Workload{Inputs: []*nodepb.Input{{Blob: big, Path: "/data/a"}}}, 3000); err != nil {
		t.Errorf("what fits: %v", err)
	}
	missing := &nodepb.Blob{Cid: big.Cid, Size: 1}
	missing.Cid = append([]byte(nil), big.Cid...)
	missing.Cid[len(missing.Cid)-1] ^= 1
	if _, err := f.prepare(&nodepb.Workload{Inputs: []*nodepb.Input{{Blob: missing, Path: "/data/a"}}}, 3000); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("what nobody has: %v", err)
	}
	twice := []*nodepb.Input{{Blob: big, Path: "/data/a"}, {Blob: big, Path: "/data/a"}}
	if _, err := f.prepare(&nodepb.Workload{Inputs: twice}, 1<<20); err == nil {
		t.Error("two inputs at one path were placed")
	}
}
