package provider

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// The kinds of the journal records of buyers, by key: when it was last, in milliseconds since 1970 (u64 little-endian).
const (
	kindBroken = "unfunded" // buyers that did not fund a lease
	kindPayer  = "funded"   // buyers that paid for one
	// maxRemembered is how many of each kind are remembered: of more, those of long ago are forgotten.
	maxRemembered = 4096
	// rememberedFor is how long one is.
	rememberedFor = 30 * 24 * time.Hour
)

// remembered are the buyers of whom this provider knows one thing.
type remembered struct {
	store store.Store
	kind  string

	mu sync.Mutex
	at map[sign.Key]time.Time
}

// loadRemembered reads the records of an earlier process, and forgets old ones.
func loadRemembered(ctx context.Context, s store.Store, kind string, now time.Time) (*remembered, error) {
	b := &remembered{store: s, kind: kind, at: map[sign.Key]time.Time{}}
	var old []store.Put
	err := s.List(ctx, kind, "", func(name string, value []byte) error {
		buyer, err := sign.ParseKey(name)
		if err != nil || len(value) != 8 {
			return fmt.Errorf("reading what is remembered of buyer %s: %d bytes", name, len(value))
		}
		if at := time.UnixMilli(int64(binary.LittleEndian.Uint64(value))); now.Sub(at) < rememberedFor {
			b.at[buyer] = at
		} else {
			old = append(old, store.Put{Kind: kind, Key: name})
		}
		return nil
	})
	if err == nil && len(old) > 0 {
		err = s.Write(ctx, old...)
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
	puts := []store.Put{{Kind: b.kind, Key: buyer.String(), Value: binary.LittleEndian.AppendUint64(nil, uint64(now.UnixMilli()))}}
	if _, known := b.at[buyer]; !known && len(b.at) >= maxRemembered {
		var first sign.Key
		for k, at := range b.at {
			if first.IsZero() || at.Before(b.at[first]) {
				first = k
			}
		}
		delete(b.at, first)
		puts = append(puts, store.Put{Kind: b.kind, Key: first.String()})
	}
	b.at[buyer] = now
	return b.store.Write(ctx, puts...)
}

// starts bounds the work that is begun before its deposit was seen: a lease takes one of maxStarts, and gives it back when its deposit is
// there; the others come back over startsOver. Keys are free, so the bound is for all buyers together.
type starts struct {
	mu     sync.Mutex
	early  map[market.LeaseID]bool
	spent  float64   // of maxStarts
	seenAt time.Time // spent is as of then
}

const (
	maxStarts  = 16
	startsOver = time.Hour
)

// take reports whether a lease may begin early. It says the same until end.
func (s *starts) take(l market.LeaseID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early[l] {
		return true
	}
	s.spent = max(s.spent-maxStarts*now.Sub(s.seenAt).Seconds()/startsOver.Seconds(), 0)
	if s.seenAt = now; s.spent > maxStarts-1 {
		return false
	}
	if s.early == nil {
		s.early = map[market.LeaseID]bool{}
	}
	s.spent++
	s.early[l] = true
	return true
}

// took reports whether a lease began early.
func (s *starts) took(l market.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early[l]
}

// end forgets a lease; funded says that its deposit was seen.
func (s *starts) end(l market.LeaseID, funded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early[l] && funded {
		s.spent = max(s.spent-1, 0)
	}
	delete(s.early, l)
}
