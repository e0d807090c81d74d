// Package gang is the buyer's machine for one order: n leases, all or none.
//
//	            all held            all signed             all active
//	Reserving ────────────▶ Signing ────────────▶ Activating ────────────▶ Running
//	    ▲                      │                      │
//	    └──── a spare asked ───┴──────────────────────┤
//	    │                                             │
//	    └── no spare left, deadline, cancelled ───────┴──▶ Releasing ──▶ Failed
//
// Every rank is one seat, and every seat asks one provider at a time, in parallel with the others. A seat whose provider
// refuses, is lost or does not answer by its deadline is given to the next spare; a slow provider is dropped, never
// waited for. No lease is signed before every seat is held, none is paid for before every seat is signed. When a seat
// finds nobody, everything is released at once.
//
// The buyer chooses hold ids before it asks, so it can release what it never heard an answer about; an answer that comes
// too late is answered with another Release. What even that cannot reach, a dead peer's hold, its provider's own
// deadline frees.
package gang
