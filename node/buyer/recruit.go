package buyer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// recruitPause is the shortest pause between two rounds of quotes for one order, recruitTimeout the longest round.
	recruitPause, recruitTimeout = 500 * time.Millisecond, 10 * time.Second
	// slowTimeout is how long a call of a gang that recruits may take.
	slowTimeout = 5 * stepTimeout
	// busyPause is about how long a provider that was busy is left alone.
	busyPause = 200 * time.Millisecond
	// longestHold bounds how long a hold is believed to last, whatever its provider says.
	longestHold = time.Minute
)

// patience is how long one call may take. The gang decides earlier where another provider is there.
func (f *forming) patience() time.Duration {
	if f.until.IsZero() {
		return stepTimeout
	}
	return slowTimeout
}

// again sends one step of a lease. While the provider is too busy for it, or does not see the order's money yet, it is
// sent again.
func (f *forming) again(ctx context.Context, id peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	for {
		reply, err := f.s.b.leases.Call(ctx, id, req)
		var no *stream.Refused
		if !errors.As(err, &no) || no.Code != stream.CodeBusy && no.Code != string(market.ReasonUnseen) {
			return reply, err
		}
		if pause(ctx, busyPause/2+rand.N(busyPause)) != nil {
			return nil, err
		}
	}
}

// heldUntil is when a hold lapses, by the provider's own word in milliseconds and not before the call that made it.
func heldUntil(called time.Time, expires int64) time.Time {
	return called.Add(min(max(time.UnixMilli(expires).Sub(called), stepTimeout+leases.ReleaseTimeout), longestHold))
}

// overlayKey reads the key that a provider named; gang checks it.
func overlayKey(raw []byte) (k market.OverlayKey, err error) {
	switch len(raw) {
	case 0:
	case len(k):
		k = market.OverlayKey(raw)
	default:
		err = fmt.Errorf("%w: overlay key of %d bytes", stream.ErrBadReply, len(raw))
	}
	return k, err
}

func unitIDs(raw [][]byte, want int) ([]market.UnitID, error) {
	if len(raw) != want {
		return nil, fmt.Errorf("%w: %d units held, %d were asked", stream.ErrBadReply, len(raw), want)
	}
	out := make([]market.UnitID, 0, len(raw))
	for _, u := range raw {
		if len(u) != len(market.UnitID{}) {
			return nil, fmt.Errorf("%w: unit id of %d bytes", stream.ErrBadReply, len(u))
		}
		out = append(out, market.UnitID(u))
	}
	return market.SortUnits(out)
}

// quote is the quote of a provider.
func (f *forming) quote(p sign.Key) exchange.Quoted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quotes[p]
}

// seated notes which providers have a seat.
func (f *forming) seated(g gang.Gang) {
	if f.until.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = map[sign.Key]bool{}
	for _, s := range g.Seats() {
		f.taken[s.Provider] = true
	}
}

// recruit collects further quotes for the order and ranks them. Providers with a seat are left out: what was agreed
// with them stands.
func (f *forming) recruit(ctx context.Context, e gang.Recruit) gang.Event {
	b := f.s.b
	how := f.how
	f.mu.Lock()
	how.Again, how.Need, how.Skip = true, len(e.Ranks), maps.Clone(f.taken)
	f.mu.Unlock()
	got := b.exchange.Collect(ctx, f.s.trace, f.order, f.envelope, how)
	f.mu.Lock()
	quotes := slices.DeleteFunc(got.Quotes, func(q exchange.Quoted) bool { return f.taken[q.Quote.Provider] })
	f.mu.Unlock()
	byKey, cands, over := b.candidates(f.s.snapshot().Spec, f.order, quotes)
	ranked := match.Rank(f.order, cands, time.Now(), b.cfg.Weights)
	_, _, short := match.Select(f.order, ranked, len(e.Ranks), f.how.Spread)
	if short != nil {
		short.Need, short.Found = int(f.order.Count), short.Found+int(f.order.Count)-len(e.Ranks)
	}
	out := gang.Recruited{Round: e.Round}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.short, f.declined = short, append(got.Declined, over...)
	for _, s := range ranked.Ranked {
		p := s.Candidate.Offer.Provider
		if f.taken[p] || slices.Contains(out.Providers, p) {
			continue
		}
		f.quotes[p] = byKey[p]
		for range max(1, min(int(s.Leases), len(e.Ranks))) {
			if out.Providers = append(out.Providers, p); f.how.Spread {
				break
			}
		}
	}
	return out
}

// failed says why a gang did not form.
func (f *forming) failed(ctx context.Context, e gang.FailedWith) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := "the order's leases could not all be taken: " + e.Reason.Error()
	for _, d := range e.Details {
		text += fmt.Sprintf("; rank %d at %s: %s", d.Rank, d.Provider.Short(), d.Refusal.Error())
	}
	f.mu.Lock()
	short, declined, quotes := f.short, f.declined, maps.Clone(f.quotes)
	f.mu.Unlock()
	if short != nil {
		text += "; " + f.s.b.exchange.Explain(ctx, f.order, short, quotes, declined)
	}
	far := f.near != "" &&
		slices.ContainsFunc(e.Details, func(d gang.Failure) bool { return d.Refusal.Reason == market.ReasonDistance })
	if far && f.paths.Unsettled() {
		return &unplaced{unsettled: true, reason: text}
	}
	if far { // nobody else is nearer: no other try changes that
		text = f.s.unlivable(f.paths.Longest()) + text
	}
	return &unplaced{raced: !far, reason: text}
}

func (f *forming) release(ctx context.Context, e gang.Release) {
	req := &marketpb.Release{Of: &marketpb.Release_Hold{Hold: e.Hold[:]}, Reason: record.Clean(e.Reason)}
	f.mu.Lock()
	d := f.drafts[e.Hold]
	f.mu.Unlock()
	if d != nil && d.lease != nil {
		f.s.b.forgo(ctx, d.lease, e.Reason)
	}
	ctx, cancel := context.WithTimeout(ctx, leases.ReleaseTimeout)
	defer cancel()
	if _, err := f.call(ctx, e.Provider,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: req}}); err != nil {
		f.s.b.cfg.Log.Debug("a release was not confirmed; the hold ends by itself", "provider", e.Provider, "err", err)
	}
	r := int(e.Rank)
	f.s.trace.Add(Step{At: time.Now(), Kind: StepReleased, Rank: &r, Provider: e.Provider.String(), Detail: e.Reason})
}

// wrong turns a failed call into the event that tells the gang.
func (f *forming) wrong(rank uint32, hold market.HoldID, p sign.Key, err error) gang.Event {
	r := int(rank)
	var no *stream.Refused
	if errors.As(err, &no) {
		f.s.trace.Add(Step{At: time.Now(), Kind: StepRefused, Rank: &r, Provider: p.String(), Detail: no.Reason})
		return gang.Refused{Rank: rank, Hold: hold, Reason: &market.Refusal{Reason: market.Reason(no.Code),
			Detail: no.Reason}}
	}
	f.s.trace.Add(Step{At: time.Now(), Kind: StepSilent, Rank: &r, Provider: p.String(), Detail: err.Error()})
	return gang.Lost{Rank: rank, Hold: hold, Reason: market.Refuse(market.ReasonLost, "%v", err)}
}

// took notes that a provider answered, and how long it took.
func (f *forming) took(kind StepKind, rank uint32, p sign.Key, start time.Time) {
	r := int(rank)
	f.s.trace.Add(Step{At: time.Now(), Kind: kind, Rank: &r, Provider: p.String(), Took: time.Since(start)})
}
