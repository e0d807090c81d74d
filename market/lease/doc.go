// Package lease is the provider's book of its units and their leases. The provider is the single writer of its own
// units, so this machine alone ensures that a unit is never sold twice.
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
// Held, Signed, Active and Ending are live: their units are exclusive. Step takes the book, the time and an event. It
// returns a new book and the effects to carry out, in order. A Persist always precedes the answer that depends on it,
// so a crash between any two effects loses no promise: Restore continues from the persisted records.
package lease
