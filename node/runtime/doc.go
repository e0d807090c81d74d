// Package runtime is the interface to a provider's sandboxes (runtime/wasm, runtime/docker). Code that sells leases
// does not depend on the kind of sandbox.
//
// An execution is one run of a program under a lease. It has a private directory, limits, mounts and two log streams,
// and it goes through
//
//	          Start            ends by itself, by Stop, by a limit
//	(none) ──────────▶ running ───────────────────────────────────▶ ended ──── Destroy ───▶ (none)
//	                     │  ▲                                         ▲
//	      peer dies      ▼  │ Recover within the grace                │ grace ends: reason "lost"
//	                   alone ─────────────────────────────────────────┘
//
// A peer journals the Handle that Start returns, and passes it to Recover after a restart. An execution that is not
// recovered within the runtime's grace ends, so a peer that never returns leaves no program running.
//
// Every implementation passes the same conformance test, runtimetest.Run.
package runtime
