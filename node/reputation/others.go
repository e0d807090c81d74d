package reputation

import (
	"bytes"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
)

// Heard records the buyers in the notice of a unit in an hour. A notice is no fact, since it does not prove that its
// receipts are anchored, but its buyers can be polled.
func (b *Book) Heard(n notice.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range n.Receipts {
		if r.Provider == b.cfg.Self || r.Buyer == b.cfg.Self || b.facts[nameOf(r)] != nil {
			continue
		}
		for old := range b.leads { // any, in Go's random order
			if len(b.leads) < maxLeads {
				break
			}
			delete(b.leads, old)
		}
		b.leads[r.Buyer] = true
	}
}

// Learn adds a receipt that others anchored. It must have been checked, on chain too. Learn reports whether it was new.
func (b *Book) Learn(a chain.Testimony) bool {
	if a.Receipt.Provider == b.cfg.Self || a.Receipt.Buyer == b.cfg.Self {
		return false // this peer has better evidence
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(a)
}

// take implements Learn. b.mu is held, or b is not shared yet.
func (b *Book) take(a chain.Testimony) (more bool) {
	n, by := nameOf(a.Receipt), a.Receipt.Buyer
	known := len(b.facts[n]) > 0
	if !known && b.shown[by] >= maxOfBuyer && !b.makeRoomOf(by, a.Receipt.To) {
		return false
	}
	for _, f := range keptBy([2]sign.Key{a.Receipt.Provider, by}, a.Receipt) {
		more = b.learn(n, f) || more
	}
	if !more || len(b.facts[n]) == 0 { // or it was the first to make room again
		return false
	}
	b.sources[n], b.fresh[n] = Source{Receipt: a.Receipt.SignedHash(), Tx: a.In.Tx}, a.Marshal()
	return true
}

// makeRoomOf forgets the oldest lease that a buyer showed, unless that is newer; b.mu is held.
func (b *Book) makeRoomOf(by sign.Key, than market.Slot) bool {
	var oldest name
	at := than
	for n, fs := range b.facts {
		if n.source != others || buyerOf(fs) != by {
			continue
		}
		before := fs[0].At == at && !oldest.id.IsZero() && bytes.Compare(n.id[:], oldest.id[:]) < 0
		if fs[0].At < at || before {
			oldest, at = n, fs[0].At
		}
	}
	if oldest.id.IsZero() {
		return false
	}
	b.forget(oldest)
	return true
}

// Knows reports whether the book has a lease of others with a receipt at least as late as r.
func (b *Book) Knows(r verify.Receipt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.facts[name{own, sign.Hash(r.Lease)}]) > 0 {
		return true
	}
	fs := b.facts[nameOf(r)]
	return len(fs) > 0 && fs[0].Value >= r.Cumulative
}

// KnowsRecord reports whether the fact of a record is known.
func (b *Book) KnowsRecord(record sign.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read[record]
}

// readable returns the peers that can be polled: connected, known or reached peers, and the buyers named in notices.
func (b *Book) readable(connected []sign.Key) (known, heard []sign.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[sign.Key]bool{b.cfg.Self: true}
	add := func(to *[]sign.Key, k sign.Key) {
		if !seen[k] && !k.IsZero() {
			seen[k] = true
			*to = append(*to, k)
		}
	}
	for _, k := range connected {
		add(&known, k)
	}
	reached := func(sign.Key) bool { return false }
	if b.view != nil {
		reached = b.view.Reached()
	}
	for n, fs := range b.facts {
		for _, f := range fs {
			for _, k := range []sign.Key{f.Subject, f.Rater} {
				if n.source == own || n.source == others && !seen[k] && reached(k) {
					add(&known, k)
				}
			}
		}
	}
	for k := range b.leads {
		add(&heard, k)
	}
	return known, heard
}
