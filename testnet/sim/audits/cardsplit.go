package audits

import (
	"slices"

	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// large are cards with the memory of several small ones.
var large = []sim.Class{sim.A100, sim.H100, sim.H200, sim.B200}

// shows returns the rates of a unit in an audit, by the rule for records; none if it would not pass.
func (u *unit) shows() audit.Rates {
	members := make([]*member, audit.Committee)
	for i := range members {
		members[i] = &member{trip: u.w.Noise.Trip()}
	}
	r := audit.Record{Committee: audit.Committee, Answer: audit.Answer{Shape: u.shape, Walk: u.walk}}
	for _, v := range u.times(members, u.w.Noise.Speed()*u.card) {
		v.Outcome = audit.Pass
		r.Verdicts = append(r.Verdicts, audit.Signed{Verdict: v})
	}
	if r.CheckClass(u.class, u.resources) != nil {
		return audit.Rates{}
	}
	return r.Rates()
}

// pays returns the reward of an epoch of Horizon audits for a card that answers as all of these units. The sum is
// shared with a hundred H100 at their floors. It also returns the number of passed audits.
func pays(units []*unit) (paid uint64, passed int) {
	self, others := sign.Key{1}, sign.Key{2}
	table := rewards.Table{Shared: [rewards.Sources]uint64{1e15}}
	var tallies []rewards.Tally
	add := func(of sign.Key, n byte, shown []audit.Rates) {
		r, k := audit.Capacity(shown), rewards.UnitKey{Provider: of, Unit: market.UnitID{of[0], n}}
		tallies = append(tallies, rewards.Tally{Line: rewards.Line{UnitKey: k, Windows: uint32(len(shown)),
			Operations: r.Operations, Reads: r.Reads, Memory: r.Memory}})
	}
	for i, u := range units {
		var shown []audit.Rates
		for range play.Horizon {
			if r := u.shows(); r.Operations > 0 {
				shown = append(shown, r)
			}
		}
		if passed += len(shown); len(shown) > 0 {
			add(self, byte(i), shown)
		}
	}
	for i := range byte(100) {
		rates := audit.Rates{Operations: 350e12, Reads: 25_400e6, Memory: 70 << 30}
		add(others, i, slices.Repeat([]audit.Rates{rates}, play.Horizon))
	}
	award, err := table.Divide(0, tallies, rewards.Guards{}, func(k sign.Key) (sign.Key, bool) { return k, true })
	if err != nil {
		return 0, passed
	}
	for _, p := range award.Payees {
		if p.Wallet == self {
			paid = p.Amount
		}
	}
	return paid, passed
}

// smallCards is a large card that answers at each instant as the number of RTX 3060 that its memory allows. The gain is
// the excess of its rewards over those of the card under its own name, as a share of these. It is caught if it has
// none.
func smallCards(w *play.World) (play.Trial, error) {
	c := large[w.R.IntN(len(large))]
	whole := honest(w, c)
	known, _ := audit.KnownAs(sim.RTX3060.Market)
	least := known.VRAMMiB
	k := 2 + w.R.IntN(int(c.Resources.VRAMMiB/least)-1)
	var parts []*unit
	for range k {
		u := *whole
		u.claims(sim.RTX3060)
		u.resources.VRAMMiB = least
		u.asked()
		u.together = float64(k)
		parts = append(parts, &u)
	}
	own, _ := pays([]*unit{whole})
	split, passed := pays(parts)
	t := play.Trial{Checks: passed, First: split <= own, Caught: split <= own,
		Gain: float64(split)/float64(max(own, 1)) - 1}
	if passed == 0 {
		t.Gain = -1
	}
	return t, nil
}

// One large card as several small ones, all of which answer at each instant: each has the memory of a small card.
var cardSplitKinds = []play.Kind{{
	Name: "card-split", Threat: 5, What: "one large card as 2 to 15 RTX 3060, by its memory", Try: smallCards,
	Limit: "each has the properties of such a card, " +
		"and its longer walk loses less to host and network, so that together they may earn more",
	Gain: play.Gain{What: "rewards beyond those of the card under its own name, as a share of them, at most", Most: 2,
		Worst: true},
}}
