package sim

import "github.com/starling-network/starling/node/device/sim"

// A weaker model sold as a stronger one. It computes the missing part of the other's memory again.
func upsell(has, says sim.Class) func(*world) player {
	return func(w *world) player {
		u := honest(w, has).claims(says)
		if short := 1 - float64(has.Memory())/float64(u.walk.Bytes()); short > 0 {
			u.lacks(short)
		}
		return u.play
	}
}

var upsellKinds = []Kind{
	{Name: "upsell", Threat: 3, What: "an RTX 3060 is sold as an RTX 4090", play: upsell(sim.RTX3060, sim.RTX4090)},
	{Name: "upsell-near", Threat: 3, What: "an A100 of 80 GB is sold as an H100", play: upsell(sim.A100, sim.H100),
		Limit: "by mma.sync an A100 has 0.8 of an H100's arithmetic, and half its reads lie within the allowances"},
	{Name: "upsell-memory", Threat: 3, What: "an H100 is sold as an H200, which only has more memory",
		play: upsell(sim.H100, sim.H200)},
	{Name: "upsell-consumer", Threat: 3, What: "an RTX 4090 is sold as an A100", play: upsell(sim.RTX4090, sim.A100)},
}
