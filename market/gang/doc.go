// Package gang is the buyer's machine for one order: n leases, all or none.
//
//	            all held            all signed             all active
//	Reserving ────────────▶ Signing ────────────▶ Activating ────────────▶ Running
//	    ▲                      │                      │
//	    └──── a spare asked ───┴──────────────────────┤
//	    │                                             │
//	    └── no spare left, deadline, cancelled ───────┴──▶ Releasing ──▶ Failed
//
// Every rank is one seat. Every seat requests a hold from one provider at a time, in parallel with the other seats. If
// the provider refuses, is lost or misses its deadline, the seat goes to the next spare. No lease is signed before
// every seat is held, and none is paid for before every seat is signed. If a seat has no spare left, all holds are
// released.
//
// The buyer chooses hold ids before it sends requests, so it can release holds whose answers were lost. A late answer
// gets another Release. A hold that no Release reaches ends with its provider's own deadline.
package gang
