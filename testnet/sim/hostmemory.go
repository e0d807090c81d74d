package sim

import "github.com/starling-network/starling/node/device/sim"

// keeps puts a share of the dataset in the host's memory, where the card reads it over the bus.
func keeps(share float64) func(*world) player {
	return func(w *world) player {
		u := honest(w, anyGPU(w))
		u.have = sim.Share{Resident: 1 - share, Host: share}
		return u.play
	}
}

// The dataset is where the protocol cannot look: in the host's memory, of which there is much.
var hostMemoryKinds = []Kind{
	{Name: "host-25", Threat: 4, What: "25 % of the dataset is in the host's memory", play: keeps(0.25)},
	{Name: "host-15", Threat: 4, What: "15 % of it is",
		Limit: "host memory for less than 30 % on the smallest card, 13 % on others", play: keeps(0.15)},
	{Name: "host-8", Threat: 4, What: "8 % of it is", Limit: "host memory for less than 10 %", play: keeps(0.08)},
}
