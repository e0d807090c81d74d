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

func TestServes(t *testing.T) {
	t.Parallel()
	a, b, c := sign.Key{1}, sign.Key{2}, sign.Key{3}
	for name, s := range map[string]struct {
		pol  Policy
		want [3]bool
	}{
		"everybody":    {Policy{}, [3]bool{true, true, true}},
		"block":        {Policy{Block: map[sign.Key]string{a: "owes"}}, [3]bool{false, true, true}},
		"at run time":  {Policy{Blocked: func(k sign.Key) bool { return k == b }}, [3]bool{true, false, true}},
		"only":         {Policy{Only: []sign.Key{a, b}}, [3]bool{true, true, false}},
		"only blocked": {Policy{Only: []sign.Key{a, b}, Block: map[sign.Key]string{a: ""}}, [3]bool{false, true, false}},
	} {
		for i, k := range []sign.Key{a, b, c} {
			no := s.pol.serves(k)
			if (no == nil) != s.want[i] || no != nil && (no.Reason != market.ReasonBlocked || no.Error() != "this provider does not serve you") {
				t.Errorf("%s: buyer %d: %v", name, i, no)
			}
		}
	}
}

func TestCheckLots(t *testing.T) {
	t.Parallel()
	unit := func(class market.Class, change func(*market.Unit)) market.Unit {
		u, err := market.NewUnit(sign.Key{1}, class, "a model", "serial", 0, market.Resources{MilliCPU: 1})
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(&u)
		}
		return u
	}
	lot := func(class market.Class, change func(*Lot)) Lot {
		l := Lot{Class: class, Units: []market.Unit{unit(class, nil)}, PerUnit: market.Resources{MilliCPU: 1}, Price: 5}
		if change != nil {
			change(&l)
		}
		return l
	}
	real := market.Genesis{Network: "x", Symbol: "STAR"}
	var many []Lot
	for i := range market.MaxOffers + 1 {
		many = append(many, lot(market.Class("gpu/"+string(rune('a'+i))), nil))
	}
	for want, lots := range map[string][]Lot{
		"":                          {lot("cpu", nil), lot("gpu/a", nil)},
		"a provider sells 1 to":     many,
		"0 classes":                 {},
		"has no units":              {lot("cpu", func(l *Lot) { l.Units = nil })},
		"listed twice":              {lot("cpu", nil), lot("cpu", nil)},
		"under the floor":           {lot("cpu", func(l *Lot) { l.Floor = 6 })},
		"cannot be sold on":         {lot("cpu", func(l *Lot) { l.Simulated = true })},
		"is not like the others":    {lot("cpu", func(l *Lot) { l.Units[0].Class = "gpu" })},
		"is not like the others ":   {lot("cpu", func(l *Lot) { l.PerUnit.DiskMiB = 1 })},
		"is not like the others  ":  {lot("cpu", func(l *Lot) { l.Capability = 90 })},
		"is not like the others   ": {lot("cpu", func(l *Lot) { l.Units[0].Simulated = true })},
	} {
		_, err := checkLots(lots, real)
		if want = strings.TrimSpace(want); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

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
		if got := p.ready(t.Context(), "docker", a, now, slog.New(slog.DiscardHandler)); got != want.ready || a.asked != want.asked {
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
	p := &Provider{cfg: Config{Reputation: judge{sign.Key{1}}, Policy: Policy{MinReputation: 500_000}}}
	if no := p.admits(t.Context(), market.Order{Buyer: sign.Key{1}, Slots: 1}, time.Now()); no != nil {
		t.Errorf("a good one: %v", no)
	}
	no := p.admits(t.Context(), market.Order{Buyer: sign.Key{2}, Slots: 1}, time.Now())
	if no == nil || no.Reason != market.ReasonReputation || !strings.Contains(no.Detail, "0.0062 here, at least 0.5000") {
		t.Errorf("a stranger: %v", no)
	}
	p.cfg.Policy.MinReputation = 0
	if no := p.admits(t.Context(), market.Order{Buyer: sign.Key{2}, Slots: 1}, time.Now()); no != nil {
		t.Errorf("where everybody is served: %v", no)
	}
}
