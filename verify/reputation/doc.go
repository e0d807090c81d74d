// Package reputation scores a peer's reliability in one reader's view: a number and its terms. The same facts give the
// same score on every machine.
//
//	facts ─▶ one per lease or record ─▶ decay ─▶ ln(1+Σ) per counterparty ─▶ × weight of the counterparty ─▶ G
//	   └──▶ failed leases of the reader, and proofs ───────────────────────────────────────────── × λ ──▶ B
//
//	score = lower 5 % bound of Beta(½ + G, ½ + B)
//
// Positive facts count by the weight of their source. The weight of a counterparty is the mass that a random walk
// brings to it. The walk begins at the reader's counterparties and at peers with stake, and continues to their
// counterparties. The scored peer is first removed from the network. So it cannot change the weight of its
// counterparties, and a peer that deals only with it has no weight. Negative facts count only if the reader saw them or
// can verify them: reports by others are not facts.
//
// A stranger's score is near 0: a failed peer gains little by a new key, and a newcomer depends on the quota for
// newcomers. Facts lose half of their weight in thirty days, so an inactive peer becomes a stranger again.
//
// A [View] is built from at most [MaxFacts] facts about at most [MaxPeers] peers, in the time of sorting them. A score
// takes a few passes over the peers that deal with each other. Values are integers. The few floats are used in a fixed
// order with each product rounded, so that all machines agree. PROTOCOL.md in the folder above has the formula.
package reputation
