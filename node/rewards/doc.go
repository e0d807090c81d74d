// Package rewards has epochs paid: a provider keeps the certificates of its audits, verifiers who have something bonded gather
// them, count, put a root to the vote and confirm each other's, and whoever is paid claims.
//
//	audit shelf ─▶ own certificates ─┐  stream "rewards"   ┌─▶ Gather ─▶ count ─▶ Propose ─▶ ballot
//	                                 └────────────────────▶│                          Vote ◀── check ◀─┘
//	                     payout ◀── Accept ◀───────────────┴── more than two thirds
//	                        └──▶ Claim, each peer its own
//
// There is one loop. It looks at the chain, does the next thing that is missing, and depends on having seen nothing: the program
// takes each step once. What is counted and when a table is right: package chain/rewards.
package rewards
