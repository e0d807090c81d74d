package audits

import (
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
)

// vramLimit is the reason why a small shortfall is not caught.
const vramLimit = "memory shortfall within the deadline (see shortfalls)"

// A card that claims more memory than it has, and computes the missing part again.
var vramKinds = []play.Kind{
	{Name: "vram", Threat: 4, What: "an RTX 4090 with 24 GB claims 48", Play: func(w *play.World) play.Player {
		u := honest(w, sim.RTX4090)
		u.resources.VRAMMiB *= 2
		return u.asked().lacks(0.5).play
	}},
	{Name: "vram-20", Threat: 4, What: "any card lacks 20 % of its dataset", Play: func(w *play.World) play.Player {
		return honest(w, anyGPU(w)).lacks(0.20).play
	}},
	{Name: "vram-5", Threat: 4, What: "any card lacks 5 %", Limit: vramLimit, Play: func(w *play.World) play.Player {
		return honest(w, anyGPU(w)).lacks(0.05).play
	}},
}

// keeps stores a share of the dataset in the host's memory, where the card reads it over the bus.
func keeps(share float64) func(*play.World) play.Player {
	return func(w *play.World) play.Player {
		u := honest(w, anyGPU(w))
		u.have = sim.Share{Resident: 1 - share, Host: share}
		return u.play
	}
}

// The dataset is invisible to the protocol: in the host's memory, which is large.
var hostMemoryKinds = []play.Kind{
	{Name: "host-25", Threat: 4, What: "25 % of the dataset is in the host's memory", Play: keeps(0.25)},
	{Name: "host-15", Threat: 4, What: "15 % of it is",
		Limit: "host memory for less than 30 % on the smallest card, 13 % on others", Play: keeps(0.15)},
	{Name: "host-8", Threat: 4, What: "8 % of it is", Limit: "host memory for less than 10 %", Play: keeps(0.08)},
}

// The card works for a second client while it is audited: half of its time, and its memory is full.
var oversoldKinds = []play.Kind{
	{Name: "oversold", Threat: 14, What: "the card serves another client at the same time", Play: always(func(u *unit) {
		u.together = 2
	})},
	{Name: "oversold-memory", Threat: 14, What: "another client has a third of its memory", Play: always(func(u *unit) {
		u.have = sim.Share{Resident: 2.0 / 3}
	})},
}
