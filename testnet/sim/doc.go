// Package sim plays the audit protocol against adversaries: many adversaries of every kind, and honest peers among
// noise. Package play plays them, packages audits and trades have them, and this one makes the table.
//
// Times are modelled: hardware by its class (node/device/sim), networks by noise. The rules are not: plans, deadlines,
// verdicts, and standings are those of verify/audit. For attacks on signed data, whole records are made and checked,
// and every lie that could be proven is looked for.
//
//	kind ── its adversaries ──▶ window after window: attempts ── times ──▶ audit.Judge, CheckClass, FailsClass
//	  │                                                                      │ audit.Report
//	  └── a few real records ──▶ audit.Record.Check … ──▶ refused by a rule  └▶ audit.Standing.Step ─▶ sold? delisted?
//
// Attacks that no audit of hardware detects are played once for each adversary, against the rules that do: results
// against verify/replica, leases against both machines of verify/meter, probes against verify/exclusive, a good name
// against verify/reputation. A result with a target is a Figure, and a table with one that misses its target
// is an error.
//
// Everything follows from the seed.
package sim
