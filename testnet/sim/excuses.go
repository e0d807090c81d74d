package sim

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

const (
	slots  = 9000                           // of a window of an hour
	price  = market.Rate(40_000_000)        // 40 base units a slot
	reward = market.Amount(2_000)           // of a window, less than what burns of one
	burns  = market.Amount(40 * slots / 50) // 2 %
)

// hides leases a unit to itself over the beginning of every window, so that it need not answer: it burns 2 % of the price. What
// Excuse makes of it is real.
func hides(burned market.Amount) func(*world) player {
	return func(*world) player {
		return func(window, _ int) audit.Report {
			w := audit.Window(window)
			first := w.First(slots)
			keeps, err := audit.Suffices(w, slots, []audit.Busy{{From: first, To: first + 100, Burned: burned}}, audit.Worth{Reward: reward, Price: price})
			if err != nil {
				return audit.Report{Result: audit.Absent}
			}
			return audit.Report{Result: audit.Excused, Keeps: keeps}
		}
	}
}

// The second identity of a card says in each window that it is busy.
var excuseKinds = []Kind{{
	Name: "excuses", Threat: 5, What: "hides behind leases to itself", play: hides(burns),
	real: func(i int) error {
		var broken *audit.RuleError
		_, err := audit.Suffices(audit.Window(i), slots, []audit.Busy{{From: 0, To: market.Slot(slots * (i + 1)), Burned: reward}}, audit.Worth{Reward: reward, Price: price})
		if !errors.As(err, &broken) || broken.Rule != audit.RuleExcuse {
			return fmt.Errorf("%w: %v", errUnmet, err)
		}
		return nil
	},
}}
