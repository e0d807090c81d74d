// Package rewards computes the rewards of an epoch: from the certificates of audits, and from claims that guardians
// signed, to the Merkle root that verifiers confirm on chain. It uses exact integers, and the order of its inputs does
// not matter.
//
//	certificates of a unit ─Count─▶ Tally ─┐
//	                                       ├─▶ Table ─Divide─▶ Award ─▶ root ─▶ ballot ─▶ payout
//	certificates of a unit ─Count─▶ Tally ─┘      │                       │
//	                                      Compare, by every verifier      └─▶ Proof, by the payee
//
// An epoch's emission goes to providers by capacity × windows: the tenth percentile of a unit's rates in the windows
// that it passed, times their number. A pool goes to guardians, for the fees of the claims whose vouchers they signed,
// of which they get half of the pool's share, and all the rest to the members of committees by the verdicts that they
// gave in certificates that count. Providers and members are counted from nothing but certificates, of which each
// verifier checks every one; a table only says which. The work of guardians is on chain: each claim's transaction shows
// the signers of its voucher and the payment.
//
// A verifier confirms a table if each of its lines follows from certificates that it has seen, and if no unit that it
// knows of is more than a tenth short. A provider that gives different certificates to different verifiers changes its
// own line by that much, and no other. A unit that works for somebody instead of being audited is paid by that
// somebody.
//
// The package is pure. PROTOCOL.md beside chain gives the layouts.
package rewards
