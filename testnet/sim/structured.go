package sim

import (
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// Matrices of a generator of seed + i + j are Hankel: each entry follows from its upper left neighbour, and the whole product costs
// O(n²). That was deployed elsewhere. Rows that are independent have no such neighbour.
var structuredKinds = []Kind{{
	Name: "structured", Threat: 9, What: "computes the first row and column, and the rest from them", play: always(func(u *unit) { u.entries = 1.0 / 64 }),
	real: func(i int) error {
		return refused(i, audit.RuleOpenings, func(c *audittest.Case) {
			c.Tile = func(_ int, t *challenge.Tile) {
				const n = challenge.TileSide
				for row := 1; row < n; row++ {
					for col := 1; col < n; col++ {
						t[row*n+col] = t[(row-1)*n+col-1]
					}
				}
			}
		}, nil, nil)
	},
}}
