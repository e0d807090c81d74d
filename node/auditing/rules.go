package auditing

import rules "github.com/starling-network/starling/verify/audit"

// The rules of audits that a peer's composition names, see package verify/audit.
type (
	Window  = rules.Window
	Roster  = rules.Roster
	Recent  = rules.Recent
	Verdict = rules.Verdict
	Lie     = rules.Lie
	Refusal = rules.Refusal
)

// Interpreted reports whether audits of this process run on an interpreter.
func Interpreted() bool { return rules.Interpreted() }
