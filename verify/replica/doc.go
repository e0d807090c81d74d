// Package replica checks results of deterministic programs. It has the provider's signed statement, the draw of a
// second computation by another provider, the resolution of differing results, and the proof of a wrong one. It is
// pure; a buyer's peer buys the replicas.
//
//	             block known            replica equal
//	committed ──────────────▶ drawn ──────────────────▶ equal
//	    │                     │  ▲ │
//	    │ not drawn           │  └─┘ differs: one more, up to MaxResults
//	    ▼                     ├──────────▶ differs    more than half agree, the others are named
//	not-drawn                 ├──────────▶ undecided  no majority among MaxResults
//	                          └──────────▶ unverified no replica could be had in time
//
// A result counts once its provider has signed it in the final receipt of its lease. The draw uses the hash of a later
// block, and a nonce to which the buyer's orders are committed. So neither provider nor buyer can predict or choose it.
//
// How often: a provider's first 10 results for a buyer are all replicated, and after V consecutive agreements with a
// replica, a result is drawn with probability 10/V. A result that the majority contradicts resets V, so that a record
// cannot be spent. A false result has no penalty on chain: it costs its provider its record and its reputation. Let g
// be the share of the providers that would give the same false result. A provider that gives only false results from
// record V on is named by the V/(10·(1 − g)²)-th of them on average. For that record it has computed about V²/20 right
// ones. With g = 0.2, at most one in twelve of a key's results is false and passes (V = 20), and 3 % at V = 100. This
// is BOINC's adaptive replication (boinc.berkeley.edu, AdaptiveReplication) with a slower descent, in integers.
//
// Layouts and limits are in ../PROTOCOL.md, section 10.
package replica
