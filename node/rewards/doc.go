// Package rewards has epochs paid: a provider keeps the certificates of its audits, verifiers with bonded stake gather
// them, count, propose a root and confirm each other's, and payees claim.
//
//	audit shelf ─▶ own certificates ─┐  stream "rewards"   ┌─▶ Gather ─▶ count ─▶ Propose ─▶ ballot
//	                                 └────────────────────▶│                          Vote ◀── check ◀─┘
//	                     payout ◀── Accept ◀───────────────┴── more than two thirds
//	                        └──▶ Claim, each peer its own
//
// There is one loop. It looks at the chain, does the next thing that is missing, and depends on having seen nothing:
// the program takes each step once. Package chain/rewards has the rules of counting and of right tables.
package rewards
