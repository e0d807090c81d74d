package reputation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/reputation"
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
			raw, err = testimonyTable.Get(ctx, b.cfg.Store, n.name)
			if errors.Is(err, store.ErrNotFound) {
				continue // forgotten since
			}
			if err != nil {
				return f, err
			}
		}
		f.Receipts = append(f.Receipts, raw)
	}
	return f, nil
}

// Told is a fact with its evidence.
type Told struct {
	Kind  string          `json:"kind"`
	Role  reputation.Role `json:"role"` // of its subject
	ID    sign.Hash       `json:"id"`   // of the lease; hash of the audit's answer, of the conflict or of the lie
	Rater sign.Key        `json:"rater,omitzero"`
	Own   bool            `json:"own,omitempty"`   // of a lease of this peer's own: its receipts are there
	Value market.Amount   `json:"value,omitempty"` // base units, as it was exchanged or lost
	At    market.Slot     `json:"at"`
	Source
}

// Opinion is this peer's opinion of another one, term by term. The Adds of each role's lines sum up to its score.
type Opinion struct {
	Provider reputation.Explanation `json:"provider"`
	Buyer    reputation.Explanation `json:"buyer"`
	// Facts are the newest that the lines are summed up from, and More is how many there are beside them.
	Facts []Told `json:"facts"`
	More  int    `json:"more,omitempty"`
}

// Recent lists the newest facts about a peer, and returns the number of further ones.
func (b *Book) Recent(about sign.Key, most int) (out []Told, more int) {
	b.mu.Lock()
	for n, fs := range b.facts {
		for _, f := range fs {
			if f.Subject == about {
				out = append(out, Told{
					Kind: f.Kind.String(), Role: f.Role, ID: f.ID, Rater: f.Rater, Own: n.source == own, Value: f.Value,
					At: f.At, Source: b.sources[n],
				})
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(out, func(x, y Told) int {
		return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(y.At, x.At), cmp.Compare(x.Kind, y.Kind),
			bytes.Compare(x.ID[:], y.ID[:]))
	})
	n := min(len(out), most)
	return out[:n:n], len(out) - n
}
