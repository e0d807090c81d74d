package providers

import (
	"context"
	"path"
	"strings"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	"github.com/libp2p/go-libp2p-kad-dht/records"
)

// parseName splits a key in the datastore into the DHT's key and the provider, both in base32 and "" if
// missing. It reports whether the key is in the part of the datastore that is for provider records.
func parseName(name string) (under, provider string, ok bool) {
	rest, ok := strings.CutPrefix(name, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", "", false
	}
	under, provider, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return under, provider, !strings.Contains(provider, "/")
}

// Get implements datastore.Datastore.
func (s *Store) Get(_ context.Context, k datastore.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byName[k.String()]; r != nil {
		return r.value, nil
	}
	return nil, datastore.ErrNotFound
}

// Has implements datastore.Datastore.
func (s *Store) Has(ctx context.Context, k datastore.Key) (bool, error) {
	return datastore.GetBackedHas(ctx, s, k)
}

// GetSize implements datastore.Datastore.
func (s *Store) GetSize(ctx context.Context, k datastore.Key) (int, error) {
	return datastore.GetBackedSize(ctx, s, k)
}

// Delete implements datastore.Datastore.
func (s *Store) Delete(_ context.Context, k datastore.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byName[k.String()]; r != nil {
		s.remove(r)
	}
	return nil
}

// Query implements datastore.Datastore. Two queries occur: for the records under one key of the DHT, which costs
// nothing for other records, and for all records.
func (s *Store) Query(_ context.Context, q query.Query) (query.Results, error) {
	under, provider, ok := parseName(path.Clean("/" + q.Prefix))
	var found query.Results
	switch {
	case path.Clean("/"+q.Prefix) == "/", ok && under == "":
		found = s.walk(q)
	case ok && provider == "":
		s.mu.Lock()
		found = query.ResultsWithEntries(q, s.keys[under].entries())
		s.mu.Unlock()
	default:
		found = query.ResultsWithEntries(q, nil)
	}
	return query.NaiveQueryApply(q, found), nil
}

// entries returns the records under a key of the DHT, which may be nil; the store's mu is held.
func (k *dhtKey) entries() []query.Entry {
	if k == nil {
		return nil
	}
	out := make([]query.Entry, len(k.records))
	for i, r := range k.records {
		out[i] = query.Entry{Key: r.name, Value: r.value, Size: len(r.value)}
	}
	return out
}

// walk returns all records. It locks the store for one key of the DHT at a time, and copies the records of no other. It
// goes through the keys from the last to the first: when a key is removed, the last one takes its place, so that none
// is left out and some may occur twice. Keys that are added meanwhile are left out.
func (s *Store) walk(q query.Query) query.Results {
	s.mu.Lock()
	left := len(s.order)
	s.mu.Unlock()
	var entries []query.Entry
	return query.ResultsFromIterator(q, query.Iterator{Next: func() (query.Result, bool) {
		for len(entries) == 0 {
			s.mu.Lock()
			left = min(left, len(s.order)) - 1
			if left >= 0 {
				entries = s.order[left].entries()
			}
			s.mu.Unlock()
			if left < 0 {
				left = 0
				return query.Result{}, false
			}
		}
		e := entries[0]
		entries = entries[1:]
		return query.Result{Entry: e}, true
	}})
}

// Batch implements datastore.Batching, through Put and Delete.
func (s *Store) Batch(context.Context) (datastore.Batch, error) {
	return datastore.NewBasicBatch(s), nil
}

// Sync implements datastore.Datastore. It does nothing.
func (s *Store) Sync(context.Context, datastore.Key) error { return nil }

// Close implements datastore.Datastore. It does nothing.
func (s *Store) Close() error { return nil }

// Options returns the settings of the DHT's library for provider records.
func (s *Store) Options() []records.Option {
	return []records.Option{
		records.ProvideValidity(s.validity),
		records.ProviderAddrTTL(s.validity),
		records.CleanupInterval(s.validity),
		records.Cache(noCache{}),
	}
}

// noCache is an empty cache. The cache of the DHT's library has the provider records under 256 keys. The library adds a
// new record to a cached key even if the store refuses it, without a bound: so an attacker with many identities could
// exceed the store's limits there. Without the cache, a lookup of a full key takes twice as long.
type noCache struct{}

func (noCache) Add(_, _ any) bool { return false }

func (noCache) Get(any) (any, bool) { return nil, false }

func (noCache) Contains(any) bool { return false }

func (noCache) Peek(any) (any, bool) { return nil, false }

func (noCache) Remove(any) bool { return false }

func (noCache) RemoveOldest() (_, _ any, _ bool) { return nil, nil, false }

func (noCache) GetOldest() (_, _ any, _ bool) { return nil, nil, false }

func (noCache) Keys() []any { return nil }

func (noCache) Len() int { return 0 }

func (noCache) Purge() {}

func (noCache) Resize(int) int { return 0 }
