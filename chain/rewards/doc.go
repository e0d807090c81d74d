// Package rewards counts what an epoch's work is paid: from the certificates of audits, and from claims under guardians' words, to
// the Merkle root that verifiers confirm on the chain, in exact integers and in no order.
//
//	certificates of a unit ─Count─▶ Tally ─┐
//	                                       ├─▶ Table ─Divide─▶ Award ─▶ root ─▶ ballot ─▶ payout
//	certificates of a unit ─Count─▶ Tally ─┘      │                       │
//	                                      Compare, by every verifier      └─▶ Proof, by who is paid
//
// An epoch's emission goes to providers by capacity × windows: the tenth percentile of what a unit showed in the windows that
// it passed, times how many those were. A pool goes to guardians, for the fees of the claims whose vouchers they signed, of which they
// get half of the pool's share, and all the rest to the members of committees by the verdicts that they gave in certificates
// that count. Providers and members are counted from nothing but certificates, of which each verifier checks every one; a table only says which. What
// guardians did the chain's past says: each claim's transaction shows who signed its voucher, and what was paid.
//
// A verifier confirms a table when each of its lines is what certificates show that it has seen, and when no unit that it knows of
// is more than a tenth short: whoever gives different verifiers different certificates moves its own line by that much and nobody
// else's. A unit that works for somebody instead of being audited is paid by that somebody.
//
// The package is pure. PROTOCOL.md beside chain gives the layouts.
package rewards
