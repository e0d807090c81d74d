package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"

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
	fetched := func(_ context.Context, _ Places, c cid.Cid, _ int64) error {
		if !f.store.Has(c) {
			return blob.ErrNotFound
		}
		return nil
	}
	return f.stage.Prepare(f.t.Context(), w, "", f.store, fetched, room, nil)
}

// Small archives with many folders take what the folders take, and all of them together no more than the lease's disk.
func TestAttackManyTrees(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var in []*nodepb.Input
	for i := range 4 {
		dir := t.TempDir()
		for j := range 100 {
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i, "-", j)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tree, err := f.store.PutTree(t.Context(), dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, &nodepb.Input{Path: fmt.Sprint("/in/", i), Blob: &nodepb.Blob{Cid: tree.CID.Bytes(), Tree: true}})
	}
	if _, err := f.prepare(&nodepb.Workload{Inputs: in[:2]}, 1<<20); err != nil {
		t.Errorf("800 KiB of folders in 1 MiB: %v", err)
	}
	if _, err := f.prepare(&nodepb.Workload{Inputs: in}, 1<<20); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("1600 KiB of folders in 1 MiB: %v", err)
	}
}

// A program leaves sparse files, of which the disk has nothing and the store would have all.
func TestAttackSparseOutputs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	w := &nodepb.Workload{Outputs: []string{"/a", "/b"}}
	if _, err := f.prepare(w, 1<<20); err != nil {
		t.Fatal(err)
	}
	used := f.store.Used()
	for _, o := range w.Outputs {
		if err := errors.Join(os.WriteFile(filepath.Join(f.stage.host(o, true), "sparse"), nil, 0o644), os.Truncate(filepath.Join(f.stage.host(o, true), "sparse"), 600<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.stage.Collect(t.Context(), w.Outputs, f.store, 1<<20); !errors.Is(err, blob.ErrTooLarge) || !strings.Contains(err.Error(), "of disk") {
		t.Errorf("1200 KiB of 1 MiB: %v", err)
	}
	if n := f.store.Used() - used; n > 700<<10 {
		t.Errorf("%d bytes of them are in the store", n)
	}
	if _, err := f.stage.Collect(t.Context(), w.Outputs, f.store, 1200<<10); err != nil {
		t.Errorf("what fits exactly: %v", err)
	}
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
