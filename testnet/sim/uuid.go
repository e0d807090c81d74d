package sim

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// A copied UUID: of the units that claim one card the oldest line of records sells, and another once both passed in one window. Nobody is
// slashed for a UUID, for it can be copied to hurt.
var uuidKinds = []Kind{
	{Name: "uuid", Threat: 18, What: "a CPU with the copied UUID of a card", play: func(w *world) player { return honest(w, sim.CPU16x).claims(sim.H100).play }},
	{Name: "uuid-thief", Threat: 18, What: "a card with the copied UUID of another, which answers when that one does not", play: func(w *world) player {
		owner, thief := honest(w, sim.H100), honest(w, sim.H100)
		return claiming(owner.play, thief.play, func(owner audit.Result) bool { return owner != audit.Passed }).thief
	}},
	{Name: "uuid-shared", Threat: 18, What: "one card behind two identities with its UUID, which answers for one in turn", play: func(w *world) player {
		card := honest(w, sim.H100)
		turn := func(window, committee int) audit.Report {
			if window%2 == 1 {
				return audit.Report{Result: audit.Absent}
			}
			return card.play(window, committee)
		}
		return claiming(turn, card.play, func(owner audit.Result) bool { return owner == audit.Absent }).thief
	}},
	{Name: "uuid-victim", Threat: 18, What: "the card whose UUID was copied by a card", Honest: true, play: func(w *world) player {
		owner, thief := honest(w, sim.H100), honest(w, sim.H100)
		return claiming(owner.play, thief.play, func(audit.Result) bool { return w.r.IntN(2) == 0 }).owner
	}},
	{Name: "uuid-late-owner", Threat: 18, What: "the card whose UUID was copied before it came", Honest: true, play: func(w *world) player {
		thief, owner := honest(w, sim.H100), honest(w, sim.H100)
		return claiming(thief.play, owner.play, func(audit.Result) bool { return true }).thief
	}},
}

// claimants are two units that claim one card: the owner's records are older.
type claimants struct {
	older, newer player
	takes        func(older audit.Result) bool // whether the newer answers in a window, by what came of the older one
	records      []audit.Record                // that passed, of both
	since        [2]audit.Moment
}

// claiming are two units of which the older's line began long before the first window, in the last window before which it passed.
func claiming(older, newer player, takes func(audit.Result) bool) *claimants {
	c := &claimants{older: older, newer: newer, takes: takes, since: [2]audit.Moment{{Window: 1, Attempt: 1}}}
	c.passed(0, firstWindow-1)
	return c
}

const firstWindow = 100

// passed keeps that one of them passed in a window.
func (c *claimants) passed(i int, w audit.Window) {
	r := audit.Record{Answer: audit.Answer{Target: audit.Target{Provider: sign.Key{byte(1 + i)}, Unit: market.UnitID{byte(1 + i)}, Window: w, Attempt: 1}}, Since: c.since[i]}
	c.since[i] = r.Line()
	c.records = append(c.records, r)
}

// play is a window of both, and what a reader who sees the newer's records first lets one of them sell: what is frozen counts for nothing.
func (c *claimants) play(i, window, committee int) audit.Report {
	w := audit.Window(firstWindow + window)
	var of [2]audit.Report
	if of[0] = c.older(window, committee); of[0].Result == audit.Passed {
		c.passed(0, w)
	}
	of[1] = audit.Report{Result: audit.Absent}
	if c.takes(of[0].Result) {
		if of[1] = c.newer(window, committee); of[1].Result == audit.Passed {
			c.passed(1, w)
		}
	}
	var cards audit.Cards
	tag := market.TagOf("GPU")
	for unit := 1; unit >= 0; unit-- {
		for _, r := range c.records {
			if r.Answer.Unit == (market.UnitID{byte(1 + unit)}) {
				cards.See(w, tag, r)
			}
		}
	}
	if of[i].Result == audit.Passed && cards.Held(w, tag, market.UnitID{byte(1 + i)}).Err() != nil {
		of[i].Result = audit.Undecided
	}
	return of[i]
}

func (c *claimants) owner(window, committee int) audit.Report { return c.play(0, window, committee) }
func (c *claimants) thief(window, committee int) audit.Report { return c.play(1, window, committee) }
