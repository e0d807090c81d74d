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
//	                                      offer ──▶ Proofs of a buyer
//
// A Prover drives all units of a peer at once and cannot influence the questions. A Member measures by its own clock
// and trusts nothing: it draws the committee itself, makes the seeds itself and computes the opened entries. Package
// verify/audit has the steps and the reasons for their order. Proofs fetches the records that offers name and checks
// each once, before units are bought by them.
package audit
