package sim

import "github.com/starling-network/starling/node/device/sim"

// The card works for a second client while it is audited: half of its time, and its memory is full.
var oversoldKinds = []Kind{
	{Name: "oversold", Threat: 14, What: "the card serves another client at the same time", play: always(func(u *unit) {
		u.together = 2
	})},
	{Name: "oversold-memory", Threat: 14, What: "another client has a third of its memory", play: always(func(u *unit) {
		u.have = sim.Share{Resident: 2.0 / 3}
	})},
}
