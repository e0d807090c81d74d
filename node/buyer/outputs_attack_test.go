package buyer

import (
	"context"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// leased is a lease of two units with 512 MiB of disk each.
func leased(t *testing.T) *leases.Lease {
	t.Helper()
	book := leases.New(leases.Config{Host: p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)}), Genesis: testGenesis})
	core := market.LeaseCore{Units: 2, Provider: sign.NewPrivate([32]byte{2}).Key()}
	rec := leases.Record{PerUnit: market.Resources{DiskMiB: 512}}
	l, err := book.Open(market.Lease{Core: core}, market.KeySet{}, rec, &own{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A provider names files that nobody asked for, or more than the lease's disk could hold: none of them is fetched.
func TestAttackUnaskedOutputs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fetched := 0
	b := &Buyer{cfg: Config{MaxOutput: 64 << 30, Fetch: func(context.Context, peer.ID, cid.Cid, int64) error { fetched++; return nil }}}
	l := leased(t)
	out := func(path string, size uint64) *nodepb.Output {
		return &nodepb.Output{Path: path, Blob: &nodepb.Blob{Cid: blob.Sum([]byte(path)).Bytes(), Size: size, Tree: true}}
	}
	wanted := []job.Output{{Path: "/out"}, {Path: "/log"}}
	for name, c := range map[string]struct {
		outs    []*nodepb.Output
		lost    bool
		fetched int
	}{
		"what was asked for":     {[]*nodepb.Output{out("/out", 1<<30), out("/log", 1<<20)}, false, 2},
		"another":                {[]*nodepb.Output{out("/out2", 1)}, true, 0},
		"one twice":              {[]*nodepb.Output{out("/out", 1), out("/out", 1)}, true, 1},
		"more than the disk":     {[]*nodepb.Output{out("/out", 3<<30)}, true, 0},
		"more than it with both": {[]*nodepb.Output{out("/out", 1<<30), out("/log", 1<<30)}, true, 1},
		"none":                   {nil, false, 0},
	} {
		fetched = 0
		res, err := b.gather(ctx, l, &nodepb.Execution{State: nodepb.ExecState_EXEC_STATE_EXITED, Outputs: c.outs}, wanted)
		if err != nil || (res.lost != "") != c.lost || fetched != c.fetched {
			t.Errorf("%s: %d fetched, lost %q, %v", name, fetched, res.lost, err)
		}
	}
}
