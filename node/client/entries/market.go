package entries

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/verify/audit"
)

// everyone sends a request to all connected entries at once and returns the answers, in the order of the entries.
func everyone[T any](ctx context.Context, k *Keeper, within time.Duration,
	ask func(context.Context, peer.ID) (T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	entries := k.Entries()
	if len(entries) == 0 {
		return nil, ErrNoEntry
	}
	answers, errs := make([]T, len(entries)), make([]error, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() { answers[i], errs[i] = ask(ctx, e) })
	}
	wg.Wait()
	var out []T
	for i := range entries {
		if errs[i] == nil {
			out = append(out, answers[i])
		}
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// Find merges the entries' offers, since one may hide some. Of two offers of a provider the later is right.
func (k *Keeper) Find(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error) {
	found, err := everyone(ctx, k, findTime, func(ctx context.Context, e peer.ID) (entry.Found, error) {
		f, err := entry.Find(ctx, k.host, *k.pin.Genesis, e, c, regions, most)
		if f.Bad > 0 {
			k.log.Warn("an entry peer sent offers that are not good", "entry", e, "offers", f.Bad)
		}
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for offers: %w", err)
	}
	return merge(found), nil
}

// merge keeps the latest offer of each provider and class, in the order in which they came.
func merge(found []entry.Found) []market.Offer {
	type of struct {
		provider sign.Key
		class    market.Class
	}
	at := map[of]int{}
	var out []market.Offer
	for _, f := range found {
		for _, o := range f.Offers {
			i, ok := at[of{o.Provider, o.Class}]
			switch {
			case !ok:
				at[of{o.Provider, o.Class}] = len(out)
				out = append(out, o)
			case o.Supersedes(out[i]) == nil:
				out[i] = o
			}
		}
	}
	return out
}

// Publish sends the order to every entry for gossip, so that a single entry cannot suppress it. It returns when the
// first entry has published it.
func (k *Keeper) Publish(ctx context.Context, _ market.Order, envelope []byte) (int, error) {
	type answer struct {
		heard int
		err   error
	}
	entries := k.Entries()
	answers := make(chan answer, len(entries))
	for _, e := range entries {
		k.wg.Go(func() {
			// The order's window may end before a slow entry has published it.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTime)
			defer cancel()
			n, err := entry.Publish(ctx, k.host, k.tag, e, envelope)
			answers <- answer{n, err}
		})
	}
	errs := []error{ErrNoEntry}
	for range entries {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case a := <-answers:
			if a.err == nil && a.heard > 0 {
				return a.heard, nil
			}
			errs = append(errs, a.err)
		}
	}
	return 0, fmt.Errorf("having the order published: %w", errors.Join(errs[min(1, len(entries)):]...))
}

// Roster returns the set that committees of a window are drawn from, if two entries agree on it. If only one entry is
// known, its answer counts. A single entry could hide members. It returns ErrNoEntry, or the reason for a missing
// roster.
func (k *Keeper) Roster(ctx context.Context, w audit.Window) (audit.Roster, error) {
	return alike(ctx, k, fmt.Sprintf("the roster of window %d", w),
		func(ctx context.Context, e peer.ID) (audit.Roster, error) {
			return entry.Roster(ctx, k.host, k.tag, e, w)
		}, func(a, b audit.Roster) bool { return slices.Equal(a, b) })
}

// Recent returns the last two windows with an audit, up to w, if two entries agree on them. If only one entry is known,
// its answer counts. By hiding an audit, a single entry could pass off an old record as fresh. It returns ErrNoEntry,
// or the reason for a missing answer.
func (k *Keeper) Recent(ctx context.Context, w audit.Window) (audit.Recent, error) {
	return alike(ctx, k, fmt.Sprintf("the audited windows up to %d", w),
		func(ctx context.Context, e peer.ID) (audit.Recent, error) {
			return entry.Recent(ctx, k.host, k.tag, e, w)
		}, func(a, b audit.Recent) bool { return a == b })
}

// alike is the answer on which two entries agree; one's answer, if no other is known at all.
func alike[T any](ctx context.Context, k *Keeper, what string, ask func(context.Context, peer.ID) (T, error),
	same func(a, b T) bool) (none T, err error) {
	told, err := everyone(ctx, k, findTime, ask)
	if err != nil {
		return none, fmt.Errorf("requesting %s from entry peers: %w", what, err)
	}
	if len(told) == 1 && k.alone() {
		return told[0], nil
	}
	for i, a := range told {
		for _, b := range told[i+1:] {
			if same(a, b) {
				return a, nil
			}
		}
	}
	if len(told) == 1 {
		return none, fmt.Errorf("requesting %s: %w: a second entry is needed for a comparison", what, ErrNoEntry)
	}
	return none, fmt.Errorf("entry peers disagree about %s", what)
}

// Dials reports whether providers are dialled too.
func (k *Keeper) Dials() bool { return k.host.Dials() }

// Carries is the data limit of an entry's roomiest circuit. If providers are dialled too, there is no such limit.
func (k *Keeper) Carries() int64 {
	if k.host.Dials() {
		return 0
	}
	var most uint64
	for _, e := range k.Entries() {
		n := k.host.CircuitData(e)
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return int64(min(most, 1<<62))
}
