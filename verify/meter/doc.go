// Package meter has the payment state machines of one running lease. They bound each side's risk.
//
// The Seller is the provider's side. It starts after the first interval is paid, and proposes a receipt at the end of
// each interval. It stops if the next interval is not paid within the grace. The Payer is the buyer's side. It pays one
// interval ahead, later up to Terms.AheadSlots, co-signs a receipt that is right in every rule and answers each with
// the voucher for the next interval.
//
//	Payer                                         Seller (chooses s, the start of billing)
//	  Started ── voucher 1: pays s to s+I ──────▶ StartWork
//	                                                … I slots …
//	  ◀───────── receipt 1: s to s+I ──────────── ProposeReceipt
//	  Cosign ─── cosignature 1, voucher 2 ──────▶
//	                                                …
//	  ◀───────── receipt n, final ─────────────── WorkEnded
//	  Cosign ─── cosignature n, final voucher ──▶ Settled
//	  Settled
//
// Interval k ends in slot H(k) = min(s + k·I, last), last being the earlier of the lease's end and the slot that its
// cap pays for. Every receipt but the final one ends in an H(k). The final one may end earlier: with the slot in which
// the work stopped, since a started slot is paid. It is empty if no more was paid, or billing had not begun.
//
// A round trip must take less than an interval and less than the grace, or the seller is not paid in time and stops.
// The payer can lose its prepayment, the seller the grace.
//
// Both are pure values: Step takes the slot and an event and gives the next value and effects, in the order in which
// they must be carried out. Persist comes first: once its state is durable the effects after it may be carried out, any
// number of times, in any order after a crash; none may be before. So neither side ever signs two different objects
// under one number, despite lost, doubled or late messages and restarts. After a restart, restore the last state and
// carry out Resume. Each Ticked repeats unanswered messages.
package meter
