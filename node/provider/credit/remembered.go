package credit

import (
	"context"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

const (
	// maxRemembered is how many of each kind are remembered: of more, those of long ago are forgotten.
	maxRemembered = 4096
	// rememberedFor is how long one is.
	rememberedFor = 30 * 24 * time.Hour
)

// The tables of buyers that are remembered, by when it was last.
var (
	unfundedTable = journal.Define[sign.Key, time.Time]("unfunded") // did not fund a lease
	fundedTable   = journal.Define[sign.Key, time.Time]("funded")   // paid for one
)

// remembered are the buyers of whom this provider knows one thing.
type remembered struct {
	store journal.Store
	table journal.Table[sign.Key, time.Time]

	mu sync.Mutex
	at map[sign.Key]time.Time
}

// loadRemembered reads the records of an earlier process, and forgets old ones.
func loadRemembered(
	ctx context.Context, s journal.Store, table journal.Table[sign.Key, time.Time], now time.Time,
) (*remembered, error) {
	b := &remembered{store: s, table: table, at: map[sign.Key]time.Time{}}
	var old journal.Batch
	err := table.List(ctx, s, "", func(buyer sign.Key, at time.Time) error {
		if now.Sub(at) < rememberedFor {
			b.at[buyer] = at
		} else {
			table.Delete(&old, buyer)
		}
		return nil
	})
	if err == nil {
		err = old.Commit(ctx, s)
	}
	return b, err
}

// has reports whether a buyer is remembered.
func (b *remembered) has(buyer sign.Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[buyer]
	return ok && now.Sub(at) < rememberedFor
}

// add remembers a buyer; after an error only in this process.
func (b *remembered) add(ctx context.Context, buyer sign.Key, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var change journal.Batch
	b.table.Put(&change, buyer, now)
	if _, known := b.at[buyer]; !known && len(b.at) >= maxRemembered {
		var first sign.Key
		for k, at := range b.at {
			if first.IsZero() || at.Before(b.at[first]) {
				first = k
			}
		}
		delete(b.at, first)
		b.table.Delete(&change, first)
	}
	b.at[buyer] = now
	return change.Commit(ctx, b.store)
}
