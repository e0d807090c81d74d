package sim

import "github.com/starling-network/starling/node/device/sim"

// A copied UUID: whoever comes second waits until both are challenged in one window. Nobody is slashed for a UUID, for it
// can be copied to hurt.
var uuidKinds = []Kind{
	{Name: "uuid", Threat: 18, What: "a CPU with the copied UUID of a card", play: func(w *world) player { return honest(w, sim.CPU16x).claims(sim.H100).play }},
	{Name: "uuid-victim", Threat: 18, What: "the card whose UUID was copied", Honest: true, play: honestPeer},
}
