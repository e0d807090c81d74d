// Package reputation scores a peer's reliability in one reader's view: a number that anybody with the same facts
// computes alike, and its terms.
//
//	facts ─▶ one per lease or record ─▶ decay ─▶ ln(1+Σ) per counterparty ─▶ × weight of the counterparty ─▶ G
//	   └──▶ failed leases of the reader, and proofs ───────────────────────────────────────────── × λ ──▶ B
//
//	score = lower 5 % bound of Beta(½ + G, ½ + B)
//
// Positive facts count by the weight of their source. The weight of a counterparty is the mass that a random walk
// brings to it. The walk begins at the reader's counterparties and at peers with stake, and continues to their
// counterparties. The scored peer is removed from the network first: so it cannot change the weight of its
// counterparties, and a peer that deals with it alone weighs nothing. Negative facts count only if the reader saw them
// or anybody can check them: reports by others are no facts.
//
// A stranger's score is near nothing: a peer that failed gains little by a new key, and a newcomer depends on the quota
// for newcomers. Facts halve in thirty days, and in the end every peer is a stranger again.
//
// A [View] is built of at most [MaxFacts] facts about at most [MaxPeers] peers, in time that grows as sorting them
// does; a score takes a few passes over the peers that deal with each other. Values are integers, and the few floats
// are used in a fixed order with each product rounded, so that all machines agree. PROTOCOL.md in the folder above has
// the formula.
package reputation
