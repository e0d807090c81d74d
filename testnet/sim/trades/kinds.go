// Package trades has the attacks outside hardware audits, one file for each: on checked results, metered leases,
// receipts and reputation.
package trades

import (
	"slices"

	"github.com/starling-network/starling/testnet/sim/play"
)

// Kinds are the attacks on trades.
func Kinds() []play.Kind {
	return slices.Concat(forgedKinds, meteringKinds, washKinds, soldTwiceKinds)
}
