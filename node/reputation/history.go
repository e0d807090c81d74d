package reputation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
)

// History returns the newest receipts that were read of leases of others with a peer.
func (b *Book) History(ctx context.Context, about sign.Key) (proof.History, error) {
	f := proof.History{Peer: about, Receipts: [][]byte{}}
	type at struct {
		name
		slot market.Slot
	}
	var names []at
	b.mu.Lock()
	for n, fs := range b.facts {
		if n.source == others && (fs[0].Subject == about || fs[0].Rater == about) {
			names = append(names, at{n, fs[0].At})
		}
	}
	fresh := map[name][]byte{}
	for _, n := range names {
		fresh[n.name] = b.fresh[n.name]
	}
	b.mu.Unlock()
	slices.SortFunc(names, func(x, y at) int {
		if x.slot != y.slot {
			if x.slot > y.slot {
				return -1
			}
			return 1
		}
		return slices.Compare(x.id[:], y.id[:])
	})
	for _, n := range names[:min(len(names), proof.MaxDeals)] {
		raw := fresh[n.name]
		if raw == nil {
			var err error
			raw, err = b.cfg.Store.Get(ctx, kindAnchored, n.String())
			if errors.Is(err, store.ErrNotFound) {
				continue // forgotten since
			}
			if err != nil {
				return f, fmt.Errorf("reading what was shown of a lease: %w", err)
			}
		}
		f.Receipts = append(f.Receipts, raw)
	}
	return f, nil
}
