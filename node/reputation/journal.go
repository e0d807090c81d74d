package reputation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// Tables of the journal.
var (
	// reputation.Fact's layout, of own leases and of records
	factsTable = journal.Define[name, [][]byte]("fact")
	// of records
	sourcesTable = journal.Define[name, Source]("factsource")
	// chain.Testimony's layout, of leases of others
	testimonyTable = journal.Define[name, []byte]("testimony")
	// chain.Testimony's layout, of this peer's leases by job
	shownTable = journal.Define[string, [][]byte]("testimonyown")
	// by peer
	visitsTable = journal.Define[sign.Key, visit]("testimonyread")
)

// Open reads the facts of an earlier process.
func Open(ctx context.Context, cfg Config) (*Book, error) {
	b := &Book{
		cfg: cfg, params: reputation.ParamsOf(cfg.Genesis), writing: make(chan struct{}, 1),
		facts: map[name][]reputation.Fact{}, counts: map[source]int{}, sources: map[name]Source{},
		fresh: map[name][]byte{}, read: map[sign.Hash]bool{},
		shown: map[sign.Key]int{}, leads: map[sign.Key]bool{}, dirty: map[name]bool{}, stakes: map[sign.Key]staked{},
		stale: true,
	}
	for _, open := range []func(context.Context) error{b.openFacts, b.openSources} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	clear(b.dirty)
	clear(b.fresh)
	return b, nil
}

// openFacts reads the facts of own leases and of records.
func (b *Book) openFacts(ctx context.Context) error {
	return factsTable.List(ctx, b.cfg.Store, "", func(n name, forms [][]byte) error {
		for _, form := range forms {
			f, err := reputation.UnmarshalFact(form)
			if err == nil && n.source == others {
				err = fmt.Errorf("%w: fact about a lease of other peers", market.ErrMalformed)
			}
			if err != nil {
				return fmt.Errorf("reading fact %s: %w", n, err)
			}
			b.learn(n, f)
		}
		return nil
	})
}

// openSources reads the anchored receipts of others, and the sources of the facts that are there.
func (b *Book) openSources(ctx context.Context) error {
	err := testimonyTable.List(ctx, b.cfg.Store, "", func(n name, form []byte) error {
		a, err := chain.UnmarshalTestimony(form)
		if err != nil || n != nameOf(a.Receipt) {
			return fmt.Errorf("reading the anchored receipt of lease %s: %w", n, cmp.Or(err, market.ErrMalformed))
		}
		b.take(a)
		return nil
	})
	if err != nil {
		return err
	}
	return sourcesTable.List(ctx, b.cfg.Store, "", func(n name, src Source) error {
		if len(b.facts[n]) > 0 {
			b.sources[n], b.read[src.Record] = src, true
		}
		return nil
	})
}

// nameOf returns the name of a lease of others. It includes both sides, because an invented receipt may have the id of
// any lease.
func nameOf(r verify.Receipt) name {
	return name{others, sign.Sum([]byte("starling/reputation/lease"), r.Lease[:], r.Provider[:], r.Buyer[:])}
}

func (n name) String() string { return string(n.source) + "/" + n.id.String() }

// MarshalText implements encoding.TextMarshaler, for the journal's keys.
func (n name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (n *name) UnmarshalText(text []byte) error {
	if len(text) < 3 || text[1] != '/' || rooms[source(text[0])] == 0 {
		return fmt.Errorf("%w: name of a fact: %.80q", market.ErrMalformed, text)
	}
	n.source = source(text[0])
	return n.id.UnmarshalText(text[2:])
}

// write brings the journal up to date and reports whether it is. A write that fails is repeated by the next call.
func (b *Book) write(ctx context.Context) bool {
	b.writing <- struct{}{} // no longer than another write takes
	defer func() { <-b.writing }()
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = map[name]bool{}
	var batch journal.Batch
	written := map[name][]byte{}
	for n := range dirty {
		b.record(&batch, n)
		if raw := b.fresh[n]; raw != nil {
			written[n] = raw
		}
	}
	b.mu.Unlock()
	err := batch.Commit(ctx, b.cfg.Store)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			b.cfg.Log.Error("reputations are not journalled; trying again", "err", err)
		}
		for n := range dirty {
			b.dirty[n] = true
		}
		return false
	}
	for n, raw := range written {
		if bytes.Equal(b.fresh[n], raw) {
			delete(b.fresh, n)
		}
	}
	return true
}

// record adds the present state of a name to a batch; b.mu is held.
func (b *Book) record(batch *journal.Batch, n name) {
	facts := b.facts[n]
	if n.source == others {
		switch raw := b.fresh[n]; {
		case raw != nil:
			testimonyTable.Put(batch, n, raw)
		case len(facts) == 0:
			testimonyTable.Delete(batch, n)
		}
		return // otherwise the journal has it
	}
	if len(facts) == 0 {
		factsTable.Delete(batch, n)
		sourcesTable.Delete(batch, n)
		return
	}
	var forms [][]byte
	for _, f := range facts {
		forms = append(forms, f.Marshal())
	}
	factsTable.Put(batch, n, forms)
	if src, ok := b.sources[n]; ok {
		sourcesTable.Put(batch, n, src)
	} else if n.source == records {
		sourcesTable.Delete(batch, n) // of a record that was forgotten and is now judged by this peer
	}
}
