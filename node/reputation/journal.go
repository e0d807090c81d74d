package reputation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// Open reads what an earlier process left.
func Open(ctx context.Context, cfg Config) (*Book, error) {
	b := &Book{cfg: cfg, params: reputation.ParamsOf(cfg.Genesis), facts: map[name][]reputation.Fact{}, counts: map[source]int{},
		sources: map[name]Source{}, fresh: map[name][]byte{}, read: map[sign.Hash]bool{}, shown: map[sign.Key]int{}, leads: map[sign.Key]bool{},
		dirty: map[name]bool{}, stakes: map[sign.Key]staked{}, stale: true}
	var unproven []store.Put // an earlier version kept what nobody had anchored
	err := cfg.Store.List(ctx, kindFact, "", func(key string, value []byte) error {
		n, err := parseName(key)
		if err != nil {
			return err
		}
		if n.source == others {
			unproven = append(unproven, store.Put{Kind: kindFact, Key: key})
			return nil
		}
		for len(value) >= reputation.FactSize {
			f, err := reputation.UnmarshalFact(value[:reputation.FactSize])
			if err != nil {
				return fmt.Errorf("reading fact %s: %w", key, err)
			}
			b.learn(n, f)
			value = value[reputation.FactSize:]
		}
		return nil
	})
	if err == nil {
		err = b.openSources(ctx)
	}
	clear(b.dirty)
	clear(b.fresh)
	if err == nil && len(unproven) > 0 {
		err = cfg.Store.Write(ctx, unproven...)
	}
	return b, err
}

// openSources reads what others anchored, and what records are.
func (b *Book) openSources(ctx context.Context) error {
	err := b.cfg.Store.List(ctx, kindAnchored, "", func(key string, value []byte) error {
		n, err := parseName(key)
		if err != nil {
			return err
		}
		a, err := chain.UnmarshalTestimony(value)
		if err != nil || n != nameOf(a.Receipt) {
			return fmt.Errorf("reading what was shown of lease %s: %w", key, cmp.Or(err, market.ErrMalformed))
		}
		b.take(a)
		return nil
	})
	if err != nil {
		return err
	}
	return b.cfg.Store.List(ctx, kindSource, "", func(key string, value []byte) error {
		n, err := parseName(key)
		var src Source
		if err == nil {
			err = json.Unmarshal(value, &src)
		}
		if err != nil {
			return fmt.Errorf("reading the source of fact %s: %w", key, err)
		}
		if len(b.facts[n]) > 0 {
			b.sources[n], b.read[src.Record] = src, true
		}
		return nil
	})
}

// nameOf is that of a lease of others, between these two: whoever makes receipts up may name any lease.
func nameOf(r verify.Receipt) name {
	return name{others, sign.Sum([]byte("starling/reputation/lease"), r.Lease[:], r.Provider[:], r.Buyer[:])}
}

func (n name) String() string { return string(n.source) + "/" + n.id.String() }

func parseName(key string) (name, error) {
	if len(key) < 3 || key[1] != '/' || rooms[source(key[0])] == 0 {
		return name{}, fmt.Errorf("reading fact %.80q: no such name", key)
	}
	id, err := sign.ParseHash(key[2:])
	if err != nil {
		return name{}, fmt.Errorf("reading fact %.80q: %w", key, err)
	}
	return name{source(key[0]), id}, nil
}

// write brings the journal up to date. What fails is tried again, and it says so.
func (b *Book) write(ctx context.Context) bool {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = map[name]bool{}
	var puts []store.Put
	written := map[name][]byte{}
	for n := range dirty {
		put, err := b.puts(n)
		if err != nil {
			b.cfg.Log.Error("what is known of a peer cannot be journalled", "fact", n, "err", err)
			continue
		}
		puts = append(puts, put...)
		if raw := b.fresh[n]; raw != nil {
			written[n] = raw
		}
	}
	b.mu.Unlock()
	if len(puts) == 0 {
		return true
	}
	err := b.cfg.Store.Write(ctx, puts...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			b.cfg.Log.Error("what is known of peers is not journalled; trying again", "err", err)
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

// puts are what the journal is to have of a name; without a value it is deleted. b.mu is held.
func (b *Book) puts(n name) ([]store.Put, error) {
	if n.source == others {
		if len(b.facts[n]) > 0 && b.fresh[n] == nil {
			return nil, nil // the journal has it
		}
		return []store.Put{{Kind: kindAnchored, Key: n.String(), Value: b.fresh[n]}}, nil
	}
	p := store.Put{Kind: kindFact, Key: n.String()}
	for _, f := range b.facts[n] {
		p.Value = append(p.Value, f.Marshal()...)
	}
	if n.source != records {
		return []store.Put{p}, nil
	}
	from := store.Put{Kind: kindSource, Key: n.String()}
	if src, ok := b.sources[n]; ok {
		var err error
		if from.Value, err = json.Marshal(src); err != nil {
			return nil, err
		}
	}
	return []store.Put{p, from}, nil
}
