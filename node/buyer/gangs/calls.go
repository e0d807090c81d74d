package gangs

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// slowTimeout is how long a call of a gang that recruits may take.
	slowTimeout = 5 * StepTimeout
	// busyPause is about how long a provider that was busy is left alone.
	busyPause = 200 * time.Millisecond
	// longestHold bounds how long a hold is believed to last, whatever its provider reports.
	longestHold = time.Minute
)

// call sends one step of a lease to its provider.
func (g *Gang) call(ctx context.Context, p sign.Key, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	q := g.Quote(p)
	id, err := g.cfg.Host.Remember(p, slices.Concat(q.Quote.Addrs, q.Offer.Addrs))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.patience(req))
	defer cancel()
	return g.again(ctx, id, req)
}

// patience returns the timeout of one call. A slow activation is cut short if another provider is available, because
// leases of others may be paid already.
func (g *Gang) patience(req *marketpb.LeaseRequest) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Recruit == nil || req.GetActivate() != nil && g.spares > 0 {
		return StepTimeout
	}
	return slowTimeout
}

// again sends one step of a lease. While the provider is too busy for it, or does not see the order's money yet, it is
// sent again.
func (g *Gang) again(ctx context.Context, id peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	for {
		reply, err := g.cfg.Leases.Call(ctx, id, req)
		var no *stream.Refused
		if !errors.As(err, &no) || no.Code != stream.CodeBusy && no.Code != string(market.ReasonUnseen) {
			return reply, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause/2 + mathrand.N(busyPause)):
		}
	}
}

func (g *Gang) release(ctx context.Context, e gang.Release) {
	req := &marketpb.Release{Of: &marketpb.Release_Hold{Hold: e.Hold[:]}, Reason: record.Clean(e.Reason)}
	g.mu.Lock()
	var signed *leases.Lease
	if d := g.drafts[e.Hold]; d != nil {
		signed = d.lease
	}
	g.mu.Unlock()
	if signed != nil {
		g.cfg.Money.Forgo(ctx, signed, e.Reason)
	}
	ctx, cancel := context.WithTimeout(ctx, leases.ReleaseTimeout)
	defer cancel()
	if _, err := g.call(ctx, e.Provider,
		&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: req}}); err != nil {
		g.cfg.Log.Debug("a release was not confirmed; the hold will expire", "provider", e.Provider, "err", err)
	}
	g.note(trace.Released, e.Rank, e.Provider, e.Reason)
}

// wrong turns a failed call into the gang's event.
func (g *Gang) wrong(rank uint32, hold market.HoldID, p sign.Key, err error) gang.Event {
	var no *stream.Refused
	if errors.As(err, &no) {
		g.note(trace.Refused, rank, p, no.Reason)
		return gang.Refused{Rank: rank, Hold: hold, Reason: &market.Refusal{Reason: market.Reason(no.Code),
			Detail: no.Reason}}
	}
	g.note(trace.Silent, rank, p, err.Error())
	return gang.Lost{Rank: rank, Hold: hold, Reason: market.Refuse(market.ReasonLost, "%v", err)}
}

// note adds a step about a rank's provider to the trace.
func (g *Gang) note(kind trace.Kind, rank uint32, p sign.Key, detail string) {
	r := int(rank)
	g.Trace.Add(trace.Step{At: time.Now(), Kind: kind, Rank: &r, Provider: p.String(), Detail: detail})
}

// took notes that a provider answered, and how long it took.
func (g *Gang) took(kind trace.Kind, rank uint32, p sign.Key, start time.Time) {
	r := int(rank)
	g.Trace.Add(trace.Step{At: time.Now(), Kind: kind, Rank: &r, Provider: p.String(), Took: time.Since(start)})
}

// heldUntil is when a hold lapses, by the provider's own word in milliseconds and not before the call that made it.
func heldUntil(called time.Time, expires int64) time.Time {
	return called.Add(min(max(time.UnixMilli(expires).Sub(called), StepTimeout+leases.ReleaseTimeout), longestHold))
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
		return nil, fmt.Errorf("%w: %d units held, want %d", stream.ErrBadReply, len(raw), want)
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
