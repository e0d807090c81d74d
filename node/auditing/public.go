package auditing

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/audit/sight"
	rules "github.com/starling-network/starling/verify/audit"
)

// maxRecentAgo is the number of past windows that light clients may request.
const maxRecentAgo = 4

// Public answers light clients that cannot read audits' public facts from the chain.
type Public struct{ *sight.Public }

// Roster returns the set that committees of a window are drawn from, if it is one of the last.
func (p Public) Roster(ctx context.Context, w rules.Window) (rules.Roster, error) {
	now, _, err := p.Window()
	if err != nil {
		return nil, err
	}
	if w > now || w < p.Instants().Ago(now, rules.EraAudits) {
		return nil, fmt.Errorf("window %d is not one of the last that lead to %d", w, now)
	}
	return p.Public.Roster(ctx, w)
}

// Recent returns the last windows with an audit up to one of the last.
func (p Public) Recent(ctx context.Context, w rules.Window) (rules.Recent, error) {
	recent, err := p.Public.Recent() // so that all earlier blocks are available
	if err != nil {
		return recent, err
	}
	if w > recent.Known || recent.Known-w > maxRecentAgo {
		return recent, fmt.Errorf("window %d is not one of the last that lead to %d", w, recent.Known)
	}
	return p.RecentAt(ctx, w)
}
