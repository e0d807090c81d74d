package sim

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Stake of the roster, in one key each of the honest.
const (
	honestMembers = 120
	againstRules  = 30  // of 150, in all keys of the adversary together
	splitKeys     = 120 // when it is spread
)

// splits draws a committee, by Roster.Draw, from a set in which a fifth of the stake is one adversary's: in one key or
// in many. It is caught where it has not enough members to say how fast a unit is, wherever Slack lets it ask.
func splits(keys int) func(w *world) (trial, error) {
	return func(w *world) (trial, error) {
		var roster audit.Roster
		for range honestMembers {
			k := random[sign.Key](w)
			roster = append(roster, audit.Member{Key: k, Owner: k, Weight: 1000})
		}
		bad := map[sign.Key]bool{}
		for range keys {
			k := random[sign.Key](w)
			bad[k] = true
			roster = append(roster, audit.Member{Key: k, Owner: k, Weight: uint64(againstRules * 1000 / keys)})
		}
		captured := func(size int) bool {
			beacon := audit.Beacon{Slot: 1, Value: random[sign.Hash](w)}
			drawn := roster.Draw(beacon, 1, random[sign.Key](w), size+audit.Slack)
			n := 0
			for _, m := range drawn {
				if bad[m.Key] {
					n++
				}
			}
			return n >= audit.Certify(size)
		}
		t := trial{checks: 1, first: !captured(audit.Committee)}
		for t.caught = t.first; !t.caught && t.checks < Horizon; t.checks++ {
			t.caught = !captured(audit.Committee)
		}
		if !t.first {
			t.gain = 1
		}
		return t, nil
	}
}

// An owner with much of the stake spreads it over keys. A draw by weight gives many keys no more than one of all their
// stake has in a committee that it could fill; one key has one seat.
var splitKinds = []Kind{
	{Name: "stake-split", Threat: 12, What: "a fifth of all stake in 120 keys", try: splits(splitKeys),
		Gain: Gain{What: "share of first committees that it has enough of, asking where Slack lets it",
			Most: atLeast(audit.Committee+audit.Slack, audit.Certify(audit.Committee), 0.2), Chance: true}},
	{Name: "stake-whole", Threat: 12, What: "a fifth of all stake in one key", try: splits(1),
		Gain: Gain{What: "the same", Most: 0}},
}
