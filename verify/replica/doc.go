// Package replica is how a result of a deterministic program is checked: what a provider signs about it, the draw that decides
// whether it is computed once more by somebody else, what follows when two differ, and the proof that comes of it. It is pure;
// a buyer's peer buys the replicas.
//
//	             block known            replica equal
//	committed ──────────────▶ drawn ──────────────────▶ equal
//	    │                     │  ▲ │
//	    │ not drawn           │  └─┘ differs: one more, up to MaxResults
//	    ▼                     ├──────────▶ differs    more than half agree, the others are named
//	not-drawn                 ├──────────▶ undecided  no majority among MaxResults
//	                          └──────────▶ unverified no replica could be had in time
//
// A result counts once its provider has signed it in the final receipt of its lease. Only then does the block exist whose hash,
// with a nonce of the buyer's that its orders have committed to, decides: neither provider nor buyer can know or choose it.
//
// How often: a provider that does not compute saves at most its price R. Let g be the share of the providers that would give the
// same false result, and d how often a comparison finds one. The first replica must be honest for the two to differ, and the
// third one as well, or the liars are the majority: it is caught with probability (1 − g)²·d, and then loses R and what it has at
// stake, S. Cheating pays nothing when results are replicated with
//
//	p* = c / ((1 − g)² · d · (R + S)),  c ≤ R
//
// and as long as a provider has no record of valid results here, more: p = max(p*, 1/V) for V consecutive results that a replica
// agreed with, 1 below AdaptiveAfter of them. One that differs resets V, so that a record cannot be spent. This is BOINC's adaptive
// replication (boinc.berkeley.edu, AdaptiveReplication) under the economics of Proof of Sampling (arXiv 2405.00295). All in integers.
//
// Layouts and what is not promised are in ../PROTOCOL.md, section 10.
package replica
