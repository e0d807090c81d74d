package sim

import "github.com/starling-network/starling/verify/audit"

// One card behind several identities. All are asked in one window, so it answers for all at once, with a part of its
// memory for each; or it answers for one in turn, and then sells no more than one.
var sybilKinds = []Kind{
	{Name: "sybils", Threat: 5, What: "one card behind 2 to 8 identities, all of which answer",
		play: func(w *world) player {
			u := honest(w, anyGPU(w))
			u.together = float64(2 + w.r.IntN(7))
			return u.lacks(1 - 1/u.together).play
		}},
	{Name: "sybils-in-turn", Threat: 5, What: "two identities answer in turn", Limit: "no gain: one is sold at a time",
		play: func(w *world) player {
			u := honest(w, anyGPU(w))
			return func(window, committee int) audit.Report {
				u.absent = window%2 == 1
				return u.play(window, committee)
			}
		}},
}
