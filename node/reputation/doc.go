// Package reputation collects what a peer knows of others, keeps it over restarts, and answers what it makes of them.
//
//	receipts of its own leases, as buyer and as provider ──┐
//	how they ended, as it saw it                           ├─▶ Book ─▶ journal
//	notices that it publishes beside, reads or holds ──────┤     └───▶ verify/reputation ─▶ scores
//	proofs of double sale, audit records                 ──┘
//
// Every fact is a statement that both sides of a lease signed, a record that anybody can check, or what this peer saw
// itself; what others tell of failures is not listened to. Facts of its own leases have room of their own, so that nobody
// drives them out with leases that cost nothing. Of what others signed those are dropped first whom the walk from this
// peer does not reach, for they count nothing, and then the oldest.
package reputation
