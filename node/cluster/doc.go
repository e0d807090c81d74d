// Package cluster says what a cluster of peers is to its members: the plan that each rank is told, how a provider checks it,
// the addresses, keys and names of the members, what a program finds in its container (contract v1), and the engines that run
// on it, as templates over that contract.
//
//	buyer ── Plan (version n) ──▶ provider of each rank: Decode, Check, After
//	                                   │
//	                                   ├─ members, keys, addresses ─▶ overlay
//	                                   └─ Contract: Env, Files     ─▶ container
//
// A plan proves itself: for each member it brings the lease that its provider and the buyer have signed, whose nonce names the
// member's key in the overlay (market.OverlayNonce). So a provider lets in whoever the buyer of its own lease has leased for
// the same job, and nobody else, whatever the buyer says.
//
//	10.77.0.0/16
//	  10.77.<rank/250>.<2+rank%250>   node-<rank>, node-<rank>.<cluster>; rank 0 is head too
//	  10.77.255.254                   the peer itself: names, services, the way out
//
// The package is pure: no goroutine, no network, no file.
package cluster
