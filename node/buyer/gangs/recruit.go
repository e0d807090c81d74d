package gangs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
)

// recruitPause is the shortest pause between two rounds of quotes for one order, recruitTimeout the longest round.
const recruitPause, recruitTimeout = 500 * time.Millisecond, 10 * time.Second

// seated notes which providers have a seat, and how many could take one.
func (g *Gang) seated(state gang.Gang) {
	if g.Recruit == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken, g.spares = map[sign.Key]bool{}, state.Spares()
	for _, s := range state.Seats() {
		g.taken[s.Provider] = true
	}
}

// recruit collects further quotes for the order and ranks them. Providers with a seat are left out: their agreements
// remain valid.
func (g *Gang) recruit(ctx context.Context, e gang.Recruit) gang.Event {
	how, o := g.Recruit.Ask, g.Order
	g.mu.Lock()
	how.Need, how.Skip = len(e.Ranks), maps.Clone(g.taken)
	g.mu.Unlock()
	got := g.cfg.Market.Collect(ctx, g.Trace, o, g.Envelope, how)
	g.mu.Lock()
	quotes := slices.DeleteFunc(got.Quotes, func(q exchange.Quoted) bool { return g.taken[q.Quote.Provider] })
	g.mu.Unlock()
	byKey, ranked, misfits := g.Recruit.Among.Rank(o, quotes)
	_, _, short := match.Select(o, ranked, len(e.Ranks), how.Spread)
	if short != nil {
		short.Need, short.Found = int(o.Count), short.Found+int(o.Count)-len(e.Ranks)
	}
	out := gang.Recruited{Round: e.Round}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.short, g.declined = short, append(got.Declined, misfits...)
	for _, s := range ranked.Ranked {
		p := s.Candidate.Offer.Provider
		if g.taken[p] || slices.Contains(out.Providers, p) {
			continue
		}
		g.Quotes[p] = byKey[p]
		for range max(1, min(int(s.Leases), len(e.Ranks))) {
			if out.Providers = append(out.Providers, p); how.Spread {
				break
			}
		}
	}
	return out
}

// failed explains why a gang did not form.
func (g *Gang) failed(ctx context.Context, e gang.FailedWith) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := "the order's leases could not all be taken: " + e.Reason.Error()
	for _, d := range e.Details {
		text += fmt.Sprintf("; rank %d at %s: %s", d.Rank, d.Provider.Short(), d.Refusal.Error())
	}
	g.mu.Lock()
	short, declined, quotes := g.short, g.declined, maps.Clone(g.Quotes)
	g.mu.Unlock()
	if short != nil {
		text += "; " + g.cfg.Market.Explain(ctx, g.Order, short, quotes, declined)
	}
	far := g.Measured() &&
		slices.ContainsFunc(e.Details, func(d gang.Failure) bool { return d.Refusal.Reason == market.ReasonDistance })
	if far && g.Cluster.Survey.Unsettled() {
		return &exchange.Unplaced{Unsettled: true, Reason: text}
	}
	if far { // no other provider is nearer: another try would not help
		text = g.Cluster.Members.Unlivable(g.Cluster.Survey.Longest()) + text
	}
	return &exchange.Unplaced{Raced: !far, Reason: text}
}
