package sim

import "github.com/starling-network/starling/node/device/sim"

// vramLimit is why a small shortfall is not caught.
const vramLimit = "memory shortfall within the deadline (see shortfalls)"

// A card that claims more memory than it has, and computes the missing part again.
var vramKinds = []Kind{
	{Name: "vram", Threat: 4, What: "an RTX 4090 with 24 GB says 48", play: func(w *world) player {
		u := honest(w, sim.RTX4090)
		u.resources.VRAMMiB *= 2
		return u.asked().lacks(0.5).play
	}},
	{Name: "vram-20", Threat: 4, What: "any card lacks 20 % of its dataset", play: func(w *world) player {
		return honest(w, anyGPU(w)).lacks(0.20).play
	}},
	{Name: "vram-5", Threat: 4, What: "any card lacks 5 %", Limit: vramLimit, play: func(w *world) player {
		return honest(w, anyGPU(w)).lacks(0.05).play
	}},
}
