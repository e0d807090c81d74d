package audits

import (
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// computes computes a share of the entries correctly. The drawn entries show whether it would be caught; then it aborts
// the attempt.
func computes(share float64) func(*play.World) play.Player {
	return always(func(u *unit) { u.entries = share })
}

// A provider that omits work, with as many attempts as a window allows.
var partialKinds = []play.Kind{
	{Name: "partial-90", Threat: 7, What: "computes 90 % of the entries",
		Play: computes(0.90), Real: func(i int) error {
			return refused(i, audit.RuleOpenings, func(c *audittest.Case) {
				// every tenth row of the product, so one of the drawn ones is wrong
				c.Tile = func(_ int, t *challenge.Tile) {
					for row := i % 10; row < challenge.TileSide; row += 10 {
						clear(t[row*challenge.TileSide : (row+1)*challenge.TileSide])
					}
				}
			}, nil, nil)
		}},
	{Name: "partial-97", Threat: 7, What: "computes 97 %", Play: computes(0.97)},
	{Name: "partial-99", Threat: 7, What: "computes 99 %", Play: computes(0.99)},
	{Name: "partial-99-once", Threat: 7, What: "computes 99 %, and never begins a second attempt",
		Play: always(func(u *unit) {
			u.entries, u.tries = 0.99, 1
		})},
}

// always is any card with a constant cheat.
func always(change func(*unit)) func(*play.World) play.Player {
	return func(w *play.World) play.Player {
		u := honest(w, anyGPU(w))
		change(u)
		return u.play
	}
}
