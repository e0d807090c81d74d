// Package node composes a peer from its rooms. It is the only place where p2p, the cores and the rooms meet.
//
// A peer is a list of services (package service), in order of dependence. They start in order and stop in reverse. New
// makes the list, and Run runs it until its context ends or a service ends. A light peer, a peer that sells nothing, a
// network without audits and a free network are shorter lists: see roomsOf.
//
// # Map
//
// The files of a home directory, with the configuration, are in config. Open opens the peer of a home directory,
// package client a light one.
//
// The rooms below the market, which every peer has:
//
//	slots       the chain's slot, from its clock or the machine's
//	onchain     the network's program: its code, its rules, registrations with their stakes
//	settle      escrows on the chain: one runner for deposits and claims
//	reputation  the conduct of others, from receipts, audits and anchors
//	proof       proofs of every kind: one store, one topic, one stream; leases in the DHT, stakes (proof/room)
//	files       content-addressed files: permission to read them, transfer, making room, inputs by URL (files/web, and
//	            files/hub for those of a model hub)
//	block       the user's block list
//
// The rooms of a full peer in the network. A light peer has its entry peers instead (node/client, node/entry):
//
//	network     offers and roles in the DHT (p2p/discovery), signed messages by topic (p2p/gossip), distances between
//	            peers by network coordinates (coords), and on these the market (exchange)
//	replies     the way of quotes back to buyers
//	entry       service for light clients
//	anchored    receipts that peers anchored on the chain
//
// The rooms that sell, buy and judge:
//
//	inventory   the hardware that is sold: units, lots, GPUs and their health
//	provider    the selling loop: lease book, metering, executions
//	selling     the operator's view of it
//	execnet     networks of executions: cluster overlays, and the way outside
//	runtimes    runtimes of programs: WebAssembly and containers
//	buyer       the buying loop: jobs, leases, payments
//	guardian    jobs of others that are guarded while their owners are away (buyer/guardian/wards)
//	auditing    audits of this peer's and of others' units (protocol in audit, devices in device)
//	rewards     rewards for audited and guarding peers
//
// The rooms for the peer's user:
//
//	status      the peer and those that it knows
//	money       earnings, payments and funds
//	metrics     measurements for Prometheus; other rooms bring their own
//	api         routes of the local API, and its server (api/server)
//
// Below all of them lie store and journal (records), machine (state machines), metering (payers and sellers) and
// protocol (streams between peers).
//
// # Health and metrics
//
// A service that can fail while it runs implements service.Health: slots (the chain and the clock), host (neighbours),
// journal (the disk), provider (fees, container engine, withdrawn units), gpus, audits and entries. A service with
// metrics implements prometheus.Collector. The composing root collects both from the list of services: status shows the
// problems, the local API answers GET /v1/health with them, and /metrics has all measurements.
//
// # The way of an order
//
//	user ── api ──▸ buyer ── exchange ──▸ gossip ──▸ exchange ── provider     the order
//	        buyer ◂── replies ◂── … ◂── replies ◂────────────── provider     quotes
//	        buyer ──────────── lease, escrow, vouchers ───────▸ provider     hold, lease, payment
//	        buyer ──────────── programs, files, logs ─────────▸ provider ── runtimes, execnet
//	        buyer ◂──────────────── receipts ───────────────── provider     co-signed, filed in both peers' rooms
//	                                                            provider ── settle ──▸ chain: claim
package node
