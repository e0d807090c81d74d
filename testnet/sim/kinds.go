package sim

import "slices"

// Kinds are all that are played, honest peers first, then in the order of the threat table.
func Kinds() []Kind {
	all := slices.Concat(
		honestKinds, metadataKinds, amxKinds, upsellKinds, modelKinds, vramKinds, hostMemoryKinds, sybilKinds,
		cardSplitKinds, rotationKinds(), partialKinds, captureKinds, oversoldKinds, uuidKinds,
		memberKinds, forgedKinds, meteringKinds, washKinds, soldTwiceKinds, contendedKinds, splitKinds, rentKinds,
	)
	slices.SortStableFunc(all, func(a, b Kind) int { return a.Threat - b.Threat })
	return all
}
