package sim

import "github.com/starling-network/starling/node/device/sim"

// A large server has the arithmetic of a small card. It has not its memory rate.
var amxKinds = []Kind{{
	Name: "amx", Threat: 2, What: "a 64-core CPU with AMX answers for an RTX 3060",
	play: func(w *world) player { return honest(w, sim.AMX64).claims(sim.RTX3060).play },
}}
