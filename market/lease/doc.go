// Package lease is the provider's book: which of its units are promised to whom. The provider is the single writer of
// its own units, so this machine alone decides that a unit is never sold twice.
//
// One hold is one rank of one order: the units set aside for it, later the lease both have signed for them.
//
//	 reserve          sign              funded              end slot, buyer's release
//	─────────▶ Held ───────▶ Signed ──────────▶ Active ────────────────────────────▶ Ending
//	             │              │ │                │                                   │
//	   released, │    released  │ │ unfunded       │ execution ended or lost           │ execution ended
//	   expired   ▼              ▼ ▼                ▼                                   ▼
//	          Released    Released Void          Ended                               Ended
//
// Held, Signed, Active and Ending are live: their units are nobody else's. Step takes the book, the time and an event
// and gives back a new book and the effects to carry out, in their order. A Persist always comes before the answer that
// depends on it, so a crash between any two effects loses nothing that was promised: Restore reads the records that
// were persisted and goes on.
package lease
