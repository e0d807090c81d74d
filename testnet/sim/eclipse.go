package sim

import (
	"fmt"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A provider that makes its own roster, or surrounds a peer until it believes one. The roster is the chain's, and a record says
// who judged.
var eclipseKinds = []Kind{{
	Name: "eclipse", Threat: 21, What: "its record is by members of its own making", play: always(func(u *unit) { u.wrong = true }),
	real: func(i int) error {
		return refused(i, audit.RuleCommittee, func(c *audittest.Case) {
			for k := range c.Roster {
				own := audittest.Key(fmt.Sprintf("own %d", k))
				c.Roster[k].Key = own.Key()
				c.Members[own.Key()] = own
			}
		}, nil, func(_ audittest.Case, r audit.Record) error { return r.CheckMembers(whole(i).Roster) })
	},
}}
