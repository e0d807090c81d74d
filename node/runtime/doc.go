// Package runtime is the interface to a provider's sandboxes (runtime/wasm, runtime/docker). Code that sells leases
// does not depend on the kind of sandbox.
//
// An execution is one run of a program under a lease. It has a private directory, limits, mounts and two log streams,
// and it goes through
//
//	          Start            ends by itself, by Stop, by a limit
//	(none) ──────────▶ running ───────────────────────────────────▶ ended ──── Destroy ───▶ (none)
//	                     │  ▲                                         ▲
//	      peer dies      ▼  │ Recover within the grace                │ grace over: reason "lost"
//	                   alone ─────────────────────────────────────────┘
//
// The Handle that Start returns is all a peer must journal. After a restart it calls Recover with it and goes on as
// before; an execution that nobody recovers within the runtime's grace ends by itself, so that a peer that never
// returns leaves nothing running.
//
// Every implementation passes the same conformance test, runtimetest.Run.
package runtime
