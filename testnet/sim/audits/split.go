package audits

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// Stake of the roster, with one key for each honest member.
const (
	honestMembers = 120
	againstRules  = 30  // of 150, in all keys of the adversary together
	splitKeys     = 120 // when it is spread over keys
)

// splits draws a committee, by Roster.Draw, from a set in which a fifth of the stake belongs to one adversary: in one
// key or in many. It is caught if it has too few members to decide a unit's speed, as far as Slack allows a choice.
func splits(keys int) func(w *play.World) (play.Trial, error) {
	return func(w *play.World) (play.Trial, error) {
		var roster audit.Roster
		for range honestMembers {
			k := play.Random[sign.Key](w)
			roster = append(roster, audit.Member{Key: k, Owner: k, Weight: 1000})
		}
		bad := map[sign.Key]bool{}
		for range keys {
			k := play.Random[sign.Key](w)
			bad[k] = true
			roster = append(roster, audit.Member{Key: k, Owner: k, Weight: uint64(againstRules * 1000 / keys)})
		}
		captured := func(size int) bool {
			beacon := audit.Beacon{Slot: 1, Value: play.Random[sign.Hash](w)}
			drawn := roster.Draw(beacon, 1, play.Random[sign.Key](w), size+audit.Slack)
			n := 0
			for _, m := range drawn {
				if bad[m.Key] {
					n++
				}
			}
			return n >= audit.Certify(size)
		}
		t := play.Trial{Checks: 1, First: !captured(audit.Committee)}
		for t.Caught = t.First; !t.Caught && t.Checks < play.Horizon; t.Checks++ {
			t.Caught = !captured(audit.Committee)
		}
		if !t.First {
			t.Gain = 1
		}
		return t, nil
	}
}

// An owner with much of the stake spreads it over keys. A draw by weight gives many keys at most the weight of their
// total stake, in a committee that they could fill; one key has one seat.
var splitKinds = []play.Kind{
	{Name: "stake-split", Threat: 12, What: "a fifth of all stake in 120 keys", Try: splits(splitKeys),
		Gain: play.Gain{What: "share of first committees with enough of its members, as far as Slack allows a choice",
			Most: atLeast(audit.Committee+audit.Slack, audit.Certify(audit.Committee), 0.2), Chance: true}},
	{Name: "stake-whole", Threat: 12, What: "a fifth of all stake in one key", Try: splits(1),
		Gain: play.Gain{What: "the same", Most: 0}},
}
