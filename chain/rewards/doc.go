// Package rewards computes the rewards of an epoch. Its inputs are the certificates of audits and the claims that
// guardians signed, in any order. Its result is the Merkle root that verifiers confirm on chain. All arithmetic is in
// exact integers.
//
//	certificates of a unit ─Count─▶ Tally ─┐
//	                                       ├─▶ Table ─Divide─▶ Award ─▶ root ─▶ ballot ─▶ payout
//	certificates of a unit ─Count─▶ Tally ─┘      │                       │
//	                                      Compare, by every verifier      └─▶ Proof, by the payee
//
// An epoch's emission goes to providers by capacity × windows: the tenth percentile of a unit's rates in the windows
// that it passed, times their number. A pool pays guardians half of its share in the fees of the claims with vouchers
// that they signed. The rest goes to committee members, by their verdicts in counted certificates. Providers and
// members are counted from certificates only. A table lists them, and each verifier checks every one. The work of
// guardians is on chain: each claim's transaction shows the signers of its voucher and the payment.
//
// A verifier confirms a table if each line follows from certificates that it has seen, and if no unit in its own count
// is more than a tenth short. A provider that gives different certificates to different verifiers changes its own line
// by at most that tenth, and no other line. A unit that is leased instead of audited is paid by its buyer.
//
// The package is pure. PROTOCOL.md beside chain gives the layouts.
package rewards
