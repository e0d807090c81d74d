// Package audits has the adversaries of audits of hardware, one file for each kind of attack: units that are not as
// claimed, shared, rented, or absent, and members of committees that lie.
package audits

import (
	"slices"

	"github.com/starling-network/starling/testnet/sim/play"
)

// Kinds are the adversaries of audits, honest peers first.
func Kinds() []play.Kind {
	return slices.Concat(
		honestKinds, metadataKinds, amxKinds, upsellKinds, modelKinds, vramKinds, hostMemoryKinds, sybilKinds,
		cardSplitKinds, rotationKinds(), partialKinds, captureKinds, oversoldKinds, uuidKinds, memberKinds,
		contendedKinds,
		splitKinds, rentKinds,
	)
}
