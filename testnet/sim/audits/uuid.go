package audits

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// A copied UUID: of the units with one card, a reader buys the unit that it saw pass first, and the other once both
// have passed in one window.
var uuidKinds = []play.Kind{
	{Name: "uuid-thief",
		Threat: 18, What: "a card with the copied UUID of another, which answers when the other does not",
		Play: func(w *play.World) play.Player {
			owner, thief := honest(w, sim.H100), honest(w, sim.H100)
			return claiming(owner.play, thief.play, func(owner audit.Result) bool {
				return owner != audit.Passed
			}).thief
		}},
	{Name: "uuid-victim", Threat: 18, What: "the card with the copied UUID, against a card", Honest: true,
		Play: func(w *play.World) play.Player {
			owner, thief := honest(w, sim.H100), honest(w, sim.H100)
			return claiming(owner.play, thief.play, func(audit.Result) bool { return w.R.IntN(2) == 0 }).owner
		}},
	{Name: "uuid-late-owner", Threat: 18, What: "the card with the UUID copied before its arrival", Honest: true,
		Play: func(w *play.World) play.Player {
			thief, owner := honest(w, sim.H100), honest(w, sim.H100)
			return claiming(thief.play, owner.play, func(audit.Result) bool { return true }).thief
		}},
}

// claimants are two units with one claimed card, of which a reader saw the first pass before the other arrived.
type claimants struct {
	players [2]play.Player
	takes   func(first audit.Result) bool // whether the second answers in a window, by the result of the first
	cards   *audit.Cards
}

const firstWindow = 100

var copied = market.TagOf("GPU")

func claiming(first, second play.Player, takes func(audit.Result) bool) *claimants {
	// only windows with audits are counted here
	c := &claimants{players: [2]play.Player{first, second}, takes: takes, cards: audit.NewCards(audit.Instants{})}
	c.cards.See(firstWindow-1, copied, claimant(0, firstWindow-1))
	return c
}

func claimant(i int, w audit.Window) audit.Target {
	return audit.Target{Provider: sign.Key{byte(1 + i)}, Unit: market.UnitID{byte(1 + i)}, Window: w}
}

// play runs a window of both. It returns a unit's result for a reader that sees the second unit's records first; a
// waiting unit counts for nothing.
func (c *claimants) play(i, window, committee int) audit.Report {
	w := audit.Window(firstWindow + window)
	of := [2]audit.Report{c.players[0](window, committee), {Result: audit.Absent}}
	if c.takes(of[0].Result) {
		of[1] = c.players[1](window, committee)
	}
	for k := 1; k >= 0; k-- {
		if of[k].Result == audit.Passed {
			c.cards.See(w, copied, claimant(k, w))
		}
	}
	if of[i].Result == audit.Passed && c.cards.Check(w, copied, claimant(i, w)) != nil {
		of[i].Result = audit.Undecided
	}
	return of[i]
}

func (c *claimants) owner(window, committee int) audit.Report { return c.play(0, window, committee) }
func (c *claimants) thief(window, committee int) audit.Report { return c.play(1, window, committee) }
