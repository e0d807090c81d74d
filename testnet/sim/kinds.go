package sim

import (
	"slices"

	"github.com/starling-network/starling/testnet/sim/audits"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/testnet/sim/trades"
)

// Kinds are all kinds, honest peers first, then in the order of the threat table.
func Kinds() []play.Kind {
	all := slices.Concat(audits.Kinds(), trades.Kinds())
	slices.SortStableFunc(all, func(a, b play.Kind) int { return a.Threat - b.Threat })
	return all
}
