// Package audits has the adversaries of hardware audits, one file for each kind of attack: units with false claims,
// shared, rented or absent units, and lying committee members.
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
