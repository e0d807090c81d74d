package gang_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// TestScripts plays the scenarios in testdata/*.txt; -rewrite writes what happened as what is expected. Providers are
// letters. Answers name rank and provider; late ones find the hold by both.
//
//	new chosen=abc spares=de units=1      held rank=0 by=a units=1      signed rank=0 by=a left=20      activated rank=0 by=a
//	new … measure    measured round=1 unfit=0 by=a: without unfit all are near enough
//	new … overlay    held … key=1: it names the overlay key of that number; 0 is of small order
//	new … recruit    recruited round=1 by=cd    held … ttl=5000    released … old: of the hold before the present one
//	refused rank=0 by=a    lost rank=0 by=a    released rank=0 by=a    cancelled    tick ms=500 slots=1
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			t.Skip("not a script")
		}
		p := &player{now: lease.Now{Time: epoch, Slot: 1000}, holds: map[string]market.HoldID{}, old: map[string]market.HoldID{}}
		datadriven.RunTest(t, path, p.run)
	})
}

type player struct {
	g     gang.Gang
	now   lease.Now
	holds map[string]market.HoldID
	old   map[string]market.HoldID // released
}

func (p *player) run(t *testing.T, d *datadriven.TestData) string {
	number := func(key string, def int) int {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &def)
		}
		return def
	}
	text := func(key string) (s string) {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &s)
		}
		return s
	}
	rank := uint32(number("rank", 0))
	hold := p.holds[fmt.Sprint(rank, text("by"))]
	refusal := market.Refuse(market.ReasonCapacity, "1 units asked, 0 of 1 are free")
	var ev gang.Event
	switch d.Cmd {
	case "new":
		var chosen []gang.Member
		for i, c := range []byte(text("chosen")) {
			m := gang.Member{Rank: uint32(i)}
			if c != '-' {
				m.Provider = sign.Key{c}
			}
			chosen = append(chosen, m)
		}
		var spares []sign.Key
		for _, c := range []byte(text("spares")) {
			spares = append(spares, sign.Key{c})
		}
		p.now = lease.Now{Time: epoch, Slot: 1000}
		params := testParams()
		if d.HasArg("recruit") {
			params = recruitParams()
		}
		params.Overlay = d.HasArg("overlay")
		if d.HasArg("measure") {
			params.MeasureTimeout = 3 * time.Second
		}
		g, effects := gang.New(testOrder(uint32(len(chosen)), uint32(number("units", 1))), chosen, spares, params)
		p.g = g
		return p.show(effects)
	case "held":
		var units []market.UnitID
		for i := range number("units", 1) {
			units = append(units, market.UnitID{text("by")[0], byte(number("from", int(rank))), byte(i)})
		}
		held := gang.Held{Rank: rank, Hold: hold, Units: units}
		if d.HasArg("key") {
			held.Overlay = overlayKey(byte(number("key", 0)))
		}
		if ttl := number("ttl", 0); ttl > 0 {
			held.Until = p.now.Time.Add(time.Duration(ttl) * time.Millisecond)
		}
		ev = held
	case "recruited":
		recruited := gang.Recruited{Round: uint32(number("round", 1))}
		for _, c := range []byte(text("by")) {
			recruited.Providers = append(recruited.Providers, sign.Key{c})
		}
		ev = recruited
	case "measured":
		measured := gang.Measured{Round: uint32(number("round", 1))}
		if d.HasArg("unfit") {
			rank = uint32(number("unfit", 0))
			measured.Unfit = []gang.Unfit{{Rank: rank, Hold: p.holds[fmt.Sprint(rank, text("by"))], Reason: market.Refuse(market.ReasonDistance, "41ms apart")}}
		}
		ev = measured
	case "signed":
		ev = gang.Signed{Rank: rank, Hold: hold, Lease: market.LeaseID{1}, ActivateBefore: p.now.Slot + market.Slot(number("left", 20))}
	case "activated":
		ev = gang.Activated{Rank: rank, Hold: hold}
	case "refused":
		ev = gang.Refused{Rank: rank, Hold: hold, Reason: refusal}
	case "lost":
		ev = gang.Lost{Rank: rank, Hold: hold, Reason: market.Refuse(market.ReasonLost, "connection reset")}
	case "released":
		if d.HasArg("old") {
			hold = p.old[fmt.Sprint(rank, text("by"))]
		}
		ev = gang.Released{Hold: hold}
	case "cancelled":
		ev = gang.Cancelled{Reason: "stopped by its owner"}
	case "tick":
		p.now.Time = p.now.Time.Add(time.Duration(number("ms", 0)) * time.Millisecond)
		p.now.Slot += market.Slot(number("slots", 0))
		ev = gang.DeadlinePassed{}
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	next, effects, err := p.g.Step(p.now, ev)
	if err != nil {
		t.Fatal(err)
	}
	p.g = next
	return p.show(effects)
}

func (p *player) show(effects []gang.Effect) string {
	var b strings.Builder
	for _, e := range effects {
		switch e := e.(type) {
		case gang.Reserve:
			p.holds[fmt.Sprint(e.Rank, string(e.Provider[:1]))] = e.Hold
			fmt.Fprintf(&b, "reserve rank %d at %c\n", e.Rank, e.Provider[0])
		case gang.Recruit:
			fmt.Fprintf(&b, "recruit %d for %v\n", e.Round, e.Ranks)
		case gang.Release:
			p.old[fmt.Sprint(e.Rank, string(e.Provider[:1]))] = e.Hold
			fmt.Fprintf(&b, "release rank %d at %c: %s\n", e.Rank, e.Provider[0], letter(e.Reason))
		case gang.Sign:
			fmt.Fprintf(&b, "sign rank %d at %c, %d units", e.Rank, e.Provider[0], len(e.Units))
			if !e.Overlay.IsZero() {
				fmt.Fprintf(&b, ", overlay key %d", e.Overlay[1])
			}
			b.WriteByte('\n')
		case gang.Measure:
			fmt.Fprintf(&b, "measure %d:", e.Round)
			for _, s := range e.Seats {
				fmt.Fprintf(&b, " %d=%c", s.Rank, s.Provider[0])
			}
			fmt.Fprintln(&b)
		case gang.Activate:
			fmt.Fprintf(&b, "activate rank %d at %c\n", e.Rank, e.Provider[0])
		case gang.Formed:
			fmt.Fprintf(&b, "formed:")
			for _, s := range e.Seats {
				fmt.Fprintf(&b, " %d=%c", s.Rank, s.Provider[0])
			}
			fmt.Fprintln(&b)
		case gang.FailedWith:
			fmt.Fprintf(&b, "failed: %s: %s\n", e.Reason.Reason, letter(e.Reason.Error()))
			for _, f := range e.Details {
				fmt.Fprintf(&b, "  rank %d at %c: %s: %s\n", f.Rank, f.Provider[0], f.Refusal.Reason, f.Refusal)
			}
		}
	}
	fmt.Fprintf(&b, "%s", p.g.State())
	if at, ok := p.g.NextDeadline(); ok {
		fmt.Fprintf(&b, ", next deadline in %s", at.Sub(p.now.Time))
	}
	return b.String() + "\n"
}

// letter writes providers in a text as their letters.
func letter(text string) string {
	for c := byte('a'); c <= 'z'; c++ {
		text = strings.ReplaceAll(text, sign.Key{c}.Short(), string(c))
	}
	return text
}
