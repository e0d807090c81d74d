package audits

import (
	"github.com/starling-network/starling/testnet/sim/play"
)

// beset is an honest peer in a network with a fifth of all weight against it.
func beset(do friend) func(*play.World) play.Player {
	return func(w *play.World) play.Player {
		u := honest(w, anyGPU(w))
		u.colluding, u.friends = 0.20, do
		return u.play
	}
}

// Members that attack an honest peer. They keep it from being listed in windows with enough of them; none of this
// counts as failed.
var memberKinds = []play.Kind{
	{Name: "withholding", Threat: 22, What: "honest; 20 % of members give nonces and no verdict",
		Honest: true, Play: beset(withhold)},
	{Name: "slander", Threat: 22, What: "honest; 20 % of members report it as slow",
		Honest: true, Play: beset(slander)},
	{Name: "denial", Threat: 22, What: "honest; 20 % of members report it as wrong", Honest: true, Play: beset(deny)},
}
