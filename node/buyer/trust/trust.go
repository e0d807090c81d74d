// Package trust keeps a buyer's records of providers with checked results. The records decide how often a provider's
// next results are computed again: verify/replica.
package trust

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/semaphore"

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
	judging *semaphore.Weighted // one verdict at a time

	mu      sync.Mutex
	records map[sign.Key]replica.Trust
}

// Load reads the records. It returns ErrRecord and the journal's errors.
func Load(ctx context.Context, st journal.Store) (*Book, error) {
	b := &Book{judging: semaphore.NewWeighted(1), records: map[sign.Key]replica.Trust{}}
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
// nothing changes, and Judge returns its error. One verdict is judged at a time; another waits until ctx ends. Readers
// do not wait.
func (b *Book) Judge(ctx context.Context, v replica.Verdict, write func(changes []store.Put) error) error {
	if err := b.judging.Acquire(ctx, 1); err != nil {
		return err
	}
	defer b.judging.Release(1)
	changed, puts, err := b.changes(v)
	if err != nil {
		return err
	}
	if err := write(puts); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.records, changed)
	return nil
}

// changes returns the records that a verdict changes.
func (b *Book) changes(v replica.Verdict) (changed map[sign.Key]replica.Trust, puts []store.Put, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed = map[sign.Key]replica.Trust{}
	if v.Right < 0 {
		return changed, nil, nil
	}
	for _, r := range v.Results {
		old, known := b.records[r.Provider]
		if !known && len(b.records)+len(changed) >= maxProviders {
			continue
		}
		if changed[r.Provider] = old.Differed(); r.Output == v.Results[v.Right].Output {
			changed[r.Provider] = old.Agreed()
		}
		p, err := records.Encode(r.Provider, changed[r.Provider])
		if err != nil {
			return nil, nil, err
		}
		puts = append(puts, p)
	}
	return changed, puts, nil
}
