package sim

import "github.com/starling-network/starling/verify/audit"

// Another root draws other entries: a cheat tries roots until none of its gaps is drawn. But what is drawn comes of nonces that
// are given after a root, so each root is an attempt, and a window has three.
var grindingKinds = []Kind{{
	Name: "grinding", Threat: 10, What: "computes 95 % and tries roots", play: computes(0.95),
	real: func(i int) error {
		return refused(i, audit.RuleSeed, nil, func(r *audit.Record) {
			r.Answer.ProductRoot[i%32]++
			restate(r)
		}, nil)
	},
}}
