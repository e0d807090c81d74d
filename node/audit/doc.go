// Package audit answers audits with a peer's units, and judges those of others.
//
//	          beacon of the window, bonded set
//	                       │
//	Prover ── Begin … Show ┼──▶ Member (of up to 11 peers)
//	   │                   │        │
//	devices (node/device)  │     verdicts
//	   │                   ▼        │
//	   └────────────▶ audit.Record ◀┘ ──▶ Shelf ──▶ anyone, by its hash
//	                                        │
//	                                      offer ──▶ proven.Proofs of a buyer
//
// A Prover drives all units of a peer at once and cannot influence the questions. A Member measures by its own clock
// and trusts nothing: it draws the committee itself, makes the seeds itself and computes the opened entries. Package
// verify/audit has the steps and the reasons for their order.
//
// The rooms below: sight has the network's public facts and the units that failed, proven the checked records of the
// units on offer, shelf the records and standings of this peer's units. The shelf is a machine with a journal; attempts
// are in memory alone, on both sides.
package audit
