package offers

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// maxLists is the number of kept lists of records: a peer with a recent offer requests the list behind it.
const maxLists = 4 * market.MaxOffers

// proofs are the lists of records behind the offers of this peer.
type proofs struct {
	roots map[market.Class]sign.Hash // of the offers to come
	lists map[sign.Hash][]market.Shown
	order []sign.Hash // of lists, oldest first
}

// Show sets the audit record of each unit; record returns none for a unit without a fresh one. Offers name the records
// from now on. It returns the units that have one.
func (b *Board) Show(units []market.Unit, record func(u market.Unit) (sign.Hash, bool)) ([]market.UnitID, error) {
	var ids []market.UnitID
	lists := map[market.Class][]market.Shown{}
	for _, u := range units {
		if h, ok := record(u); ok && len(lists[u.Class]) < market.MaxShown {
			lists[u.Class] = append(lists[u.Class], market.Shown{Unit: u.ID, Record: h})
			ids = append(ids, u.ID)
		}
	}
	roots := map[market.Class]sign.Hash{}
	for class, list := range lists {
		root, err := market.ProofRoot(list)
		if err != nil {
			return nil, fmt.Errorf("records of class %s: %w", class, err)
		}
		roots[class] = root
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proofs.roots = roots
	for class, root := range roots {
		b.proofs.keep(root, lists[class])
	}
	return ids, nil
}

// keep remembers a list as the newest.
func (p *proofs) keep(root sign.Hash, list []market.Shown) {
	p.order = append(slices.DeleteFunc(p.order, func(r sign.Hash) bool { return r == root }), root)
	p.lists[root] = list
	for len(p.order) > maxLists {
		delete(p.lists, p.order[0])
		p.order = p.order[1:]
	}
}

// Shown returns the list of records behind the proof of an offer of this peer; nil for an unknown one.
func (b *Board) Shown(root sign.Hash) []market.Shown {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proofs.lists[root]
}
