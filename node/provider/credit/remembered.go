package credit

import (
	"context"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

const (
	// maxRemembered bounds each set. The buyers of longest ago are forgotten first.
	maxRemembered = 4096
	// rememberedFor is the time after which a buyer is forgotten.
	rememberedFor = 30 * 24 * time.Hour
)

// The tables of remembered buyers, with the last time of each.
var (
	unfundedTable = journal.Define[sign.Key, time.Time]("unfunded") // did not fund a lease
	fundedTable   = journal.Define[sign.Key, time.Time]("funded")   // paid for one
)

// remembered is a set of buyers with a time each.
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

// add remembers a buyer. After an error it is remembered only in this process.
func (b *remembered) add(ctx context.Context, buyer sign.Key, now time.Time) error {
	change := b.remember(buyer, now)
	return change.Commit(ctx, b.store)
}

// remember adds a buyer in memory, where the one of longest ago makes room for it. It returns the change of the table.
// Quotes read the memory, so that no write runs under the mutex. Changes of two buyers need no order.
func (b *remembered) remember(buyer sign.Key, now time.Time) *journal.Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	change := &journal.Batch{}
	b.table.Put(change, buyer, now)
	if _, known := b.at[buyer]; !known && len(b.at) >= maxRemembered {
		var first sign.Key
		for k, at := range b.at {
			if first.IsZero() || at.Before(b.at[first]) {
				first = k
			}
		}
		delete(b.at, first)
		b.table.Delete(change, first)
	}
	b.at[buyer] = now
	return change
}
