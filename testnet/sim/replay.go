package sim

import "github.com/starling-network/starling/verify/audit"

// An answer that was right once, or that was computed before the nonces were given.
var replayKinds = []Kind{{
	Name: "replay", Threat: 6, What: "the answer of another window", play: always(func(u *unit) { u.wrong = true }),
	real: func(i int) error {
		return refused(i, audit.RuleSeed, nil, func(r *audit.Record) {
			c := whole(i)
			c.Window++
			r.Answer.Window = c.Window
			r.Beacon = c.Beacon()
			for k := range r.Verdicts {
				r.Verdicts[k].Slot += 100 // of the next window
			}
			restate(r)
		}, nil)
	},
}}

// always is any card with a cheat that never changes.
func always(change func(*unit)) func(*world) player {
	return func(w *world) player {
		u := honest(w, anyGPU(w))
		change(u)
		return u.play
	}
}
