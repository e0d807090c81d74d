// Package trust keeps a buyer's records of providers with checked results. The records decide how often a provider's
// next results are computed again: verify/replica.
package trust

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

// maxProviders bounds the providers with a record. A provider without one is always checked.
const maxProviders = 20_000

// ErrRecord is returned for a record that no verdict leaves.
var ErrRecord = errors.New("record of a provider's results")

// records has the records by provider.
var records = journal.Define[sign.Key, replica.Trust]("trust")

// Book has the records of all providers.
type Book struct {
	turn chan struct{} // has a token while a verdict is journalled: each builds on the one before

	mu      sync.Mutex // is not held during a write
	records map[sign.Key]replica.Trust
}

// Load reads the records. It returns ErrRecord and the journal's errors.
func Load(ctx context.Context, st journal.Store) (*Book, error) {
	b := &Book{turn: make(chan struct{}, 1), records: map[sign.Key]replica.Trust{}}
	err := records.List(ctx, st, "", func(p sign.Key, r replica.Trust) error {
		if r.Valid > replica.MaxTrust {
			return fmt.Errorf("%w: provider %s: got %d valid results, want at most %d",
				ErrRecord, p, r.Valid, replica.MaxTrust)
		}
		b.records[p] = r
		return nil
	})
	return b, err
}

// Of returns the record of a provider.
func (b *Book) Of(p sign.Key) replica.Trust {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.records[p]
}

// Judge changes the records of the providers in a verdict. write journals the changes, with the verdict; if it fails,
// nothing changes, and Judge returns its error. One verdict is judged at a time; Judge waits for the others until ctx
// ends. Readers do not wait.
func (b *Book) Judge(ctx context.Context, v replica.Verdict, write func(changes []store.Put) error) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	changed := b.after(v)
	var puts []store.Put
	for _, r := range v.Results {
		if now, ok := changed[r.Provider]; ok {
			p, err := records.Encode(r.Provider, now)
			if err != nil {
				return err
			}
			puts = append(puts, p)
		}
	}
	if err := write(puts); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.records, changed)
	return nil
}

// after returns the records that a verdict changes.
func (b *Book) after(v replica.Verdict) map[sign.Key]replica.Trust {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := map[sign.Key]replica.Trust{}
	if v.Right < 0 {
		return changed
	}
	for _, r := range v.Results {
		old, known := b.records[r.Provider]
		if !known && len(b.records)+len(changed) >= maxProviders {
			continue
		}
		if changed[r.Provider] = old.Differed(); r.Output == v.Results[v.Right].Output {
			changed[r.Provider] = old.Agreed()
		}
	}
	return changed
}
