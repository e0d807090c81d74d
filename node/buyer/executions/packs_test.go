package executions

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/blob"
)

// A provider that reports a false checkpoint, or none that it reported, gets it neither kept nor more than fetched.
func TestAttackFalsePack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	from, err := blob.OpenStore(t.TempDir(), 1<<30) // the provider's
	if err != nil {
		t.Fatal(err)
	}
	into, err := blob.OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	fetched := 0
	c := New(Config{MaxOutput: 1 << 20, LostAfter: 1, Fetch: func(
		ctx context.Context, _ peer.ID, id cid.Cid, most int64,
	) error {
		fetched++
		n, err := from.Size(id)
		if err != nil {
			return err
		}
		if n > most {
			return blob.ErrTooLarge
		}
		f, err := from.Open(id)
		if err != nil {
			return err
		}
		defer f.Close()
		_, _, err = into.Put(ctx, f)
		return err
	}})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model"), bytes.Repeat([]byte("x"), 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := from.PutTree(ctx, dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	junk, n, err := from.Put(ctx, strings.NewReader(strings.Repeat("junk", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	pack := func(id cid.Cid, size int64, tree bool) *nodepb.Pack {
		return &nodepb.Pack{Number: 1, Blob: &nodepb.Blob{Cid: id.Bytes(), Size: uint64(size), Tree: tree}}
	}
	for name, k := range map[string]struct {
		pack    *nodepb.Pack
		room    int64
		kept    bool
		false   bool // it is never fetched again
		fetched int
	}{
		"honest":            {pack(tree.CID, tree.Size, true), 1 << 20, true, false, 1},
		"nothing":           {nil, 1 << 20, false, true, 0},
		"no digest":         {&nodepb.Pack{Blob: &nodepb.Blob{Cid: []byte("x"), Size: 1, Tree: true}}, 1 << 20, false, true, 0},
		"a file":            {pack(tree.CID, tree.Size, false), 1 << 20, false, true, 0},
		"no size":           {pack(tree.CID, 0, true), 1 << 20, false, true, 0},
		"size too small":    {pack(tree.CID, tree.Size-1, true), 1 << 20, false, true, 1},
		"size too large":    {pack(tree.CID, tree.Size+1, true), 1 << 20, false, true, 1},
		"above the setting": {pack(tree.CID, 2<<20, true), 1 << 30, false, true, 0},
		"above the disk":    {pack(tree.CID, tree.Size, true), 1000, false, true, 0},
		"unpacks to more":   {pack(tree.CID, tree.Size, true), tree.Unpacked - 1, false, true, 1},
		"no room at all":    {pack(tree.CID, tree.Size, true), -1, false, true, 0},
		"no archive":        {pack(junk, n, true), 1 << 20, false, true, 1},
		"not delivered":     {pack(blob.Sum([]byte("absent")), 100, true), 1 << 20, false, false, 1},
	} {
		fetched = 0
		f, err := c.Pack(ctx, Execution{}, lease{ctx: ctx}, k.pack, k.room, into)
		if (err == nil) != k.kept || errors.Is(err, ErrPack) != k.false || fetched != k.fetched {
			t.Errorf("%s: %+v, fetched %d times, %v", name, f, fetched, err)
		}
		if k.kept && (f.CID != tree.CID.String() || f.Bytes != tree.Size || !f.Tree) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
