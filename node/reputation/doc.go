// Package reputation collects facts about other peers, keeps them over restarts, and computes scores from them.
//
//	receipts of its own leases, as buyer and as provider ──┐
//	how they ended, as it saw it                           ├─▶ Book ─▶ journal
//	notices that it publishes beside, reads or holds ──────┤     └───▶ verify/reputation ─▶ scores
//	proofs of double sale, audit records                 ──┘
//
// A fact is a statement that both sides of a lease signed, a record that any holder can check, or an observation of
// this peer. Reports of others about failures are hearsay and ignored. Facts of own leases have separate room, so that
// free leases do not displace them. Of others' leases, the ones that the walk from this peer does not reach are dropped
// first, since they count nothing, and then the oldest.
package reputation
