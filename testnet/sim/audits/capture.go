package audits

import (
	"fmt"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
)

// captured has colluding members with a share of the weight, and selects them as far as Slack allows.
func captured(share float64) play.Kind {
	return play.Kind{
		Name: fmt.Sprintf("capture-%.0f", 100*share), Threat: 12,
		What:  fmt.Sprintf("an RTX 3060 as an RTX 4090, with %.0f %% of all stake", 100*share),
		Limit: "colluding committee (see capture)", Play: func(w *play.World) play.Player {
			u := honest(w, sim.RTX3060).claims(sim.RTX4090).lacks(0.5)
			u.colluding, u.chooses = share, true
			return u.play
		},
	}
}

// Members that lie for a provider about its speed. They cannot pass wrong results.
var captureKinds = []play.Kind{captured(0.10), captured(0.20), captured(0.30), {
	Name: "clock-lies", Threat: 12, What: "an RTX 3060 as an RTX 4090, and two of each committee report it as fast",
	Play: func(w *play.World) play.Player {
		u := honest(w, sim.RTX3060).claims(sim.RTX4090).lacks(0.5)
		u.colluding, u.most = 1, 2
		return u.play
	},
}}
