// Package rewards pays epochs: a provider keeps the certificates of its audits, verifiers with bonded stake gather
// them, count, propose a root and confirm each other's, and payees claim.
//
//	audit shelf ─▶ own certificates ─┐  stream "rewards"   ┌─▶ Gather ─▶ count ─▶ Propose ─▶ ballot
//	                                 └────────────────────▶│                          Vote ◀── check ◀─┘
//	                     payout ◀── Accept ◀───────────────┴── more than two thirds
//	                        └──▶ Claim, each peer its own
//
// There is one loop. It reads the chain and does the next missing step, without any state of its own: the program
// accepts each step once. Package chain/rewards has the rules of counting and of correct tables.
package rewards
