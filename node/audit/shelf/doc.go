// Package shelf keeps the newest audit record of each of a peer's own units, how the units did before, and the places
// of the records under anchors on the chain. Everything here is durable: the market and the chain depend on it.
//
// [State] is a pure machine. A [Shelf] is its runner, a single machine of package machine: each step is one durable
// write, and readers get the last durable state without waiting.
//
//	Audited: a unit's window is over            Signed: before the transaction is sent
//	            │                                            │       ┌──────────┐
//	            ▼                                            ▼       │ expired: │ Signed again
//	   record, standing, past ───── Draw ─────────────▶ under way ───┘          │ with a new draw
//	   (Listed, Suspended, Delisted)                         │  ▲───────────────┘
//	                                                         │ Landed
//	                                                         ▼
//	                                                     anchored   with the place under the root, or as forgotten
//	                                                                if no endpoint remembers the transaction
//
// A window counts once for a unit: a result that is not of a later window than the last changes nothing. A record is in
// one final anchor at most: one that may have been anchored is not drawn again. An anchor is kept as long as its record
// can be requested.
package shelf
