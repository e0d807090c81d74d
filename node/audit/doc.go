// Package audit has a peer's units show what they are, and judges those of others.
//
//	          beacon of the window, bonded set
//	                       │
//	Prover ── Begin … Show ┼──▶ Member (of up to 11 peers)
//	   │                   │        │
//	devices (node/device)  │     verdicts
//	   │                   ▼        │
//	   └────────────▶ audit.Record ◀┘ ──▶ Shelf ──▶ anyone who asks by its hash
//	                                        │
//	                                      offer ──▶ Proofs of whoever buys
//
// A Prover drives all units of a peer at once and has no say in what is asked. A Member looks at its own clock and believes
// nothing: it draws the committee itself, makes the seeds itself and computes what is shown. What the steps are, and why they
// stand in this order: package verify/audit. Proofs fetches the records that offers name and checks each once, before units are
// bought by them.
package audit
