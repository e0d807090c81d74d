package provider

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// maxLists is the number of kept lists of records: a peer with a recent offer requests the list behind it.
const maxLists = 4 * market.MaxOffers

// proofs are the lists of records behind the offers of this peer. Provider.mu guards them.
type proofs struct {
	roots map[market.Class]sign.Hash // of the offers to come
	lists map[sign.Hash][]market.Shown
	order []sign.Hash // of lists, oldest first
}

// Show says by which audit record each unit is to be sold; record gives none for a unit that has no fresh one. Offers say so from
// now on, and orders that do not take unproven units get no others.
func (p *Provider) Show(record func(u market.Unit) (sign.Hash, bool)) {
	p.mu.Lock()
	units := p.book.Units()
	p.mu.Unlock()
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
			p.cfg.Log.Error("the records of units are not offered", "class", string(class), "err", err)
			return
		}
		roots[class] = root
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proofs.roots = roots
	for class, root := range roots {
		p.proofs.keep(root, lists[class])
	}
	p.book = p.book.WithShown(ids)
	p.offerChanged()
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

// Shown is the list of records behind the proof of an offer of this peer; nil for one that it does not remember.
func (p *Provider) Shown(root sign.Hash) []market.Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proofs.lists[root]
}
