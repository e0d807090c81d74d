package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// maxWatched bounds the watched units.
const maxWatched = 1024

// Watched is a unit that this peer's user had it watch.
type Watched struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
}

// Watching lists the units that somebody asked to look after.
func (k *Keeper) Watching() []Watched {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.AppendSeq([]Watched{}, maps.Keys(k.watched))
	slices.SortFunc(out, func(x, y Watched) int {
		return cmp.Or(cmp.Compare(x.Provider.String(), y.Provider.String()), x.Unit.Compare(y.Unit))
	})
	return out
}

// Watch looks at a unit from now on, and Unwatch does so no longer.
func (k *Keeper) Watch(ctx context.Context, w Watched) error {
	k.mu.Lock()
	full := len(k.watched) >= maxWatched && !k.watched[w]
	k.mu.Unlock()
	if full {
		return ErrMany
	}
	if err := k.cfg.Store.Write(ctx, store.Put{Kind: kindWatch, Key: w.Provider.String() + "/" + w.Unit.String(), Value: []byte{}}); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	k.watched[w] = true
	k.mu.Unlock()
	k.wake()
	return nil
}

// Unwatch ends Watch.
func (k *Keeper) Unwatch(ctx context.Context, w Watched) error {
	if err := k.cfg.Store.Write(ctx, store.Put{Kind: kindWatch, Key: w.Provider.String() + "/" + w.Unit.String()}); err != nil {
		return fmt.Errorf("journalling a unit to watch: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, w)
	return nil
}

func (k *Keeper) loadWatched(ctx context.Context) error {
	return k.cfg.Store.List(ctx, kindWatch, "", func(key string, _ []byte) error {
		provider, unit, _ := strings.Cut(key, "/")
		p, err := sign.ParseKey(provider)
		h, err2 := sign.ParseHash(unit)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("reading what is watched: %w", err)
		}
		k.watched[Watched{p, market.UnitID(h)}] = true
		return nil
	})
}
