package reputation

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/reputation"
)

// askStakes requests the stakes of known providers with an old answer.
func (b *Book) askStakes(ctx context.Context) {
	if b.cfg.Stakes == nil {
		return
	}
	due := b.dueStakes(time.Now())
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stakeTimeout)
	defer cancel()
	got, err := b.cfg.Stakes(ctx, due)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil { // the others first, before this one is asked for again
		b.stakes[due[0]] = staked{b.stakes[due[0]].amount, now}
		return
	}
	for _, k := range due {
		if amount, answered := got[k]; answered {
			b.stale = b.stale || amount != b.stakes[k].amount
			b.stakes[k] = staked{amount, now}
		}
	}
}

// dueStakes returns the providers with due stakes, the oldest answer first.
func (b *Book) dueStakes(now time.Time) (due []sign.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[sign.Key]bool{}
	for _, fs := range b.facts {
		for _, f := range fs {
			if f.Role != reputation.Provider || seen[f.Subject] {
				continue
			}
			seen[f.Subject] = true
			s, known := b.stakes[f.Subject]
			if known && now.Sub(s.asked) >= stakeFor || !known && len(b.stakes)+len(due) < maxStakes {
				due = append(due, f.Subject)
			}
		}
	}
	slices.SortFunc(due, func(x, y sign.Key) int {
		return cmp.Or(b.stakes[x].asked.Compare(b.stakes[y].asked), bytes.Compare(x[:], y[:]))
	})
	return due
}
