// Package verify defines the objects that two peers sign while a job runs, and their public checks.
//
//	Voucher           104 bytes        money: "the lease may cost up to this much, paid until this slot"
//	ReceiptCore       256 bytes        work: one metering interval, chained to the one before by hash
//	Receipt           384 bytes        core ‖ provider signature ‖ buyer signature
//	SupervisionGrant  120 bytes        guardians appoint a job's supervisor
//	Conflict          variable         two receipts that sell one unit twice in one slot
//
// All are fixed little-endian layouts that the on-chain program can read in place: integers are aligned to their size,
// also in the signed preimage, since its prefix is 96 bytes. PROTOCOL.md gives every offset, testdata has vectors.
// Subpackages: tranche is the Merkle sum tree of an escrow's leases, meter the state machines of both sides.
//
// The package is pure. A decoder checks the form of its input (market.ErrMalformed). Check methods and CheckChain check
// its meaning, and return a *RuleError or *ChainError that names the broken rule.
package verify
