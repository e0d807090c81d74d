// Package settle runs the state machines of chain/escrow: deposits, hires and claims. A [Keeper] journals their steps,
// signs and sends their transactions, polls the chain, and reports the outcome.
package settle
