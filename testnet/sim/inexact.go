package sim

import (
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// Arithmetic that is cheaper because it rounds. Integers have no tolerance to hide in.
var inexactKinds = []Kind{{
	Name: "inexact", Threat: 8, What: "rounds to eight significant bits", play: always(func(u *unit) { u.entries = 0.02 }),
	real: func(i int) error {
		return refused(i, audit.RuleOpenings, func(c *audittest.Case) {
			c.Tile = func(_ int, t *challenge.Tile) {
				for k, v := range t {
					t[k] = v &^ 0xff
				}
			}
		}, nil, nil)
	},
}}
