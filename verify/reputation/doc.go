// Package reputation says how far a peer can be trusted to keep its next lease, as one reader sees it: a number that
// anybody with the same facts computes alike, and every term of it.
//
//	facts ─▶ one per lease or record ─▶ decay ─▶ ln(1+Σ) per counterparty ─▶ × weight of the counterparty ─▶ G
//	   └──▶ what the reader itself saw fail, and proofs ─────────────────────────────────────────── × λ ──▶ B
//
//	score = lower 5 % bound of Beta(½ + G, ½ + B)
//
// Good counts by who says it. The weight of a counterparty is what a random walk brings to it that begins at those who
// dealt with the reader, and at those with stake, and that goes on to whom they dealt with. The peer that is scored is
// taken out of the network first: so nothing that it is part of changes what its counterparties weigh, and one that
// deals with it alone weighs nothing. Bad counts only where the reader saw it, or where anybody can check it: what
// others tell is no fact.
//
// A stranger's score is near nothing: a peer that failed gains little by a new key, and a newcomer lives from what is kept
// for newcomers. Facts halve in thirty days, and in the end every peer is a stranger again.
//
// A [View] is built of at most [MaxFacts] facts about at most [MaxPeers] peers, in time that grows as sorting them does;
// a score takes a few passes over the peers that deal with each other. Values are integers, and the few floats are used
// in a fixed order with each product rounded, so that all machines agree. PROTOCOL.md in the folder above has the formula.
package reputation
