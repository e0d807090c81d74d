package notices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// maxWatched bounds the watched units.
const maxWatched = 1024

// Watched is a unit that this peer's user had it watch.
type Watched struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
}

func (w Watched) key() string { return w.Provider.String() + "/" + w.Unit.String() }

// Watching lists the units that this peer watches.
func (k *Publisher) Watching() []Watched {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.AppendSeq([]Watched{}, maps.Keys(k.watched))
	slices.SortFunc(out, func(x, y Watched) int {
		return cmp.Or(cmp.Compare(x.Provider.String(), y.Provider.String()), x.Unit.Compare(y.Unit))
	})
	return out
}

// Watch journals a unit and reads its leases from now on. It returns ErrMany if too many are watched.
func (k *Publisher) Watch(ctx context.Context, w Watched) error {
	k.mu.Lock()
	full := len(k.watched) >= maxWatched && !k.watched[w]
	k.mu.Unlock()
	if full {
		return ErrMany
	}
	if err := watchedTable.Write(ctx, k.cfg.Store, w.key(), w); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	k.watched[w] = true
	k.mu.Unlock()
	k.wake()
	return nil
}

// Unwatch ends Watch for a unit.
func (k *Publisher) Unwatch(ctx context.Context, w Watched) error {
	if err := watchedTable.Remove(ctx, k.cfg.Store, w.key()); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, w)
	return nil
}

func (k *Publisher) loadWatched(ctx context.Context) error {
	return watchedTable.List(ctx, k.cfg.Store, "", func(key string, w Watched) error {
		if key != w.key() {
			return fmt.Errorf("reading watched unit %s: %w: got %s", key, market.ErrMalformed, w.key())
		}
		k.watched[w] = true
		return nil
	})
}
