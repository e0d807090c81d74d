package sim

import "github.com/starling-network/starling/node/device/sim"

// A large server has the arithmetic of a card, and the memory rate of the smallest.
var amxKinds = []Kind{
	{Name: "amx", Threat: 2, What: "a 64-core CPU with AMX answers for an RTX 3090", play: func(w *world) player {
		return honest(w, sim.AMX64).claims(sim.RTX3090).play
	}},
	{
		Name: "amx-small", Threat: 2, What: "the same answers for an RTX 3060",
		Limit: "a server with eight channels of memory reads as fast as the smallest card",
		play: func(w *world) player {
			return honest(w, sim.AMX64).claims(sim.RTX3060).play
		},
	},
}
