package provider

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

const (
	// kindBroken is the kind of the journal records of buyers that did not fund a lease: when that was last, in milliseconds since
	// 1970 (u64 little-endian), by key.
	kindBroken = "unfunded"
	// maxBroken is how many are remembered: when there are more, the ones of long ago are forgotten.
	maxBroken = 4096
	// brokenFor is how long one is.
	brokenFor = 30 * 24 * time.Hour
)

// broken remembers the buyers that got work begun for a promise which they did not keep.
type broken struct {
	store store.Store

	mu sync.Mutex
	at map[sign.Key]time.Time
}

// loadBroken reads what an earlier process remembered, and forgets what is too old.
func loadBroken(ctx context.Context, s store.Store, now time.Time) (*broken, error) {
	b := &broken{store: s, at: map[sign.Key]time.Time{}}
	var old []store.Put
	err := s.List(ctx, kindBroken, "", func(name string, value []byte) error {
		buyer, err := sign.ParseKey(name)
		if err != nil || len(value) != 8 {
			return fmt.Errorf("reading the unfunded lease of buyer %s: %d bytes", name, len(value))
		}
		if at := time.UnixMilli(int64(binary.LittleEndian.Uint64(value))); now.Sub(at) < brokenFor {
			b.at[buyer] = at
		} else {
			old = append(old, store.Put{Kind: kindBroken, Key: name})
		}
		return nil
	})
	if err == nil && len(old) > 0 {
		err = s.Write(ctx, old...)
	}
	return b, err
}

// by says whether a buyer is remembered.
func (b *broken) by(buyer sign.Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[buyer]
	return ok && now.Sub(at) < brokenFor
}

// add remembers a buyer; after an error only in this process.
func (b *broken) add(ctx context.Context, buyer sign.Key, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	puts := []store.Put{{Kind: kindBroken, Key: buyer.String(), Value: binary.LittleEndian.AppendUint64(nil, uint64(now.UnixMilli()))}}
	if _, known := b.at[buyer]; !known && len(b.at) >= maxBroken {
		var first sign.Key
		for k, at := range b.at {
			if first.IsZero() || at.Before(b.at[first]) {
				first = k
			}
		}
		delete(b.at, first)
		puts = append(puts, store.Put{Kind: kindBroken, Key: first.String()})
	}
	b.at[buyer] = now
	return b.store.Write(ctx, puts...)
}
