package provider

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/reputation"
)

// ailing is an engine that comes and goes.
type ailing struct {
	err   error
	asked int
}

func (a *ailing) Probe(context.Context) error {
	a.asked++
	return a.err
}

// An engine is asked at most once in a while, and believed until then.
func TestProbes(t *testing.T) {
	t.Parallel()
	var p probes
	a := &ailing{}
	now := time.Now()
	for i, want := range []struct {
		err   error
		after time.Duration
		ready bool
		asked int
	}{
		{nil, 0, true, 1},
		{runtime.ErrEngine, probeEvery / 2, true, 1},
		{runtime.ErrEngine, probeEvery, false, 2},
		{nil, probeEvery / 2, false, 2},
		{nil, probeEvery, true, 3},
	} {
		a.err = want.err
		now = now.Add(want.after)
		if got := p.ready(t.Context(), "docker", a, now, slog.New(slog.DiscardHandler)) == nil; got != want.ready || a.asked != want.asked {
			t.Errorf("step %d: ready %v, asked %d times, want %+v", i, got, a.asked, want)
		}
	}
}

// judge is a Reputation that knows one buyer.
type judge struct{ known sign.Key }

func (j judge) Scores(role reputation.Role, peers ...sign.Key) []reputation.Score {
	out := make([]reputation.Score, len(peers))
	for i, k := range peers {
		out[i] = reputation.Score{Peer: k, Role: role, Millionths: reputation.Stranger}
		if k == j.known && role == reputation.Buyer {
			out[i].Millionths = 700_000
		}
	}
	return out
}

func (judge) Failed(market.LeaseCore, market.Amount) {}

func TestBuyersOfLittleReputationAreRefused(t *testing.T) {
	t.Parallel()
	p := &Provider{cfg: Config{Reputation: judge{sign.Key{1}}, Policy: Policy{MinReputation: 500_000}}, Operator: &Operator{}}
	q := newQuotes(p)
	if no := q.admits(t.Context(), market.Order{Buyer: sign.Key{1}, Slots: 1}, time.Now()); no != nil {
		t.Errorf("a good one: %v", no)
	}
	no := q.admits(t.Context(), market.Order{Buyer: sign.Key{2}, Slots: 1}, time.Now())
	if no == nil || no.Reason != market.ReasonReputation || !strings.Contains(no.Detail, "got 0.0062, want at least 0.5000") {
		t.Errorf("a stranger: %v", no)
	}
	p.cfg.Policy.MinReputation = 0
	if no := q.admits(t.Context(), market.Order{Buyer: sign.Key{2}, Slots: 1}, time.Now()); no != nil {
		t.Errorf("where everybody is served: %v", no)
	}
}
