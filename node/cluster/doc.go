// Package cluster defines a cluster of peers for its members: each rank's plan, a provider's check of it, the
// addresses, keys and names of the members, the environment of a program in its container (contract v1), and the
// engines that run on it, as templates over that contract.
//
//	buyer ── Plan (version n) ──▶ provider of each rank: Decode, Check, After
//	                                   │
//	                                   ├─ members, keys, addresses ─▶ overlay
//	                                   └─ Contract: Env, Files     ─▶ container
//
// A plan is self-certifying: for each member it contains the lease signed by its provider and the buyer. The lease's
// nonce names the member's key in the overlay (market.OverlayNonce). So a provider admits exactly the providers that
// the buyer of its own lease has leased for the same job.
//
//	10.77.0.0/16
//	  10.77.<rank/250>.<2+rank%250>   node-<rank>, node-<rank>.<cluster>; rank 0 is head too
//	  10.77.255.254                   the peer itself: names, services, the way out
//
// The package is pure: no goroutine, no network, no file.
package cluster
