package sim

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

const (
	slots = 9000                    // of a window of an hour
	price = market.Rate(40_000_000) // 40 base units a slot
	self  = 100                     // slots of a lease to oneself over the beginning of a window
	part  = 50                      // of a lease's price one in so many burns
)

// hides leases a unit to itself over the beginning of every window, so that it need not answer: a fiftieth of the price burns, and it
// is excused, which earns nothing and leaves it what it was: unproven. One that passed once while the card was its own may be sold for
// what it burned and no more, as real shows.
func hides(*world) player {
	return func(window, _ int) audit.Report {
		w := audit.Window(window)
		first := w.First(slots)
		cost, err := price.Owed(self)
		if err == nil {
			err = audit.Excuses(w, slots, []audit.Busy{{From: first, To: first + self, Burned: cost / part}})
		}
		if err != nil {
			return audit.Report{Result: audit.Absent}
		}
		return audit.Report{Result: audit.Excused}
	}
}

// The second identity of a card says in each window that it is busy.
var excuseKinds = []Kind{{
	Name: "excuses", Threat: 5, What: "hides behind leases to itself", play: hides,
	real: func(i int) error {
		var broken *audit.RuleError
		first := audit.Window(i + 1).First(slots)
		err := audit.Keeps([]audit.Busy{{From: first, To: first + self, Burned: 40 * self / part}}, price, first, first+self+self/part)
		if !errors.As(err, &broken) || broken.Rule != audit.RuleFresh {
			return fmt.Errorf("%w: %v", errUnmet, err)
		}
		return nil
	},
}}
