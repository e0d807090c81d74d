package sim

import "github.com/starling-network/starling/node/device/sim"

// A farm of processors that claim to be GPUs: one network had 1.8 million of them.
var metadataKinds = []Kind{{
	Name: "metadata", Threat: 1, What: "a 16-core CPU answers for an RTX 3060",
	play: func(w *world) player { return honest(w, sim.CPU16x).claims(sim.RTX3060).play },
	real: unlisted,
}}
