// Package sim plays the audit protocol against adversaries: many adversaries of every kind, and honest peers among
// noise. Package play runs them, packages audits and trades define them, and this package makes the table.
//
// Times are modelled: hardware by its class (node/device/sim), networks by noise. The rules are real: plans, deadlines,
// verdicts, and standings are those of verify/audit. For attacks on signed data, whole records are made and checked,
// and searched for every provable lie.
//
//	kind ── its adversaries ──▶ window after window: attempts ── times ──▶ audit.Judge, CheckClass, FailsClass
//	  │                                                                      │ audit.Report
//	  └── a few real records ──▶ audit.Record.Check … ──▶ refused by a rule  └▶ audit.Standing.Step ─▶ sold? delisted?
//
// Attacks outside hardware audits are played once for each adversary, against their own rules: results against
// verify/replica, leases against both machines of verify/meter, probes against verify/exclusive, reputation against
// verify/reputation. A result with a target is a Figure, and a missed target is an error.
//
// Everything follows from the seed.
package sim
