// Package market defines the objects that peers trade: units of capacity, offers, orders, quotes, leases, and money as
// integers. Everything here is a checked value; the package starts nothing, reads no clock and draws no random number,
// so time is an argument wherever it matters.
//
//	Offer  provider → all      inventory and prices               signed protobuf, DHT and gossip
//	Order  buyer → all         demand and highest price           signed protobuf, gossip and stream "ask"
//	Quote  provider → buyer    terms for this order               signed protobuf, streams "ask" and "quote"
//	Lease  provider ⇄ buyer    units sold, signed by both          fixed layout, stream "lease"
//
// Offers, orders and quotes travel in a sign.Envelope: key[32] ‖ signature[64] ‖ payload, the payload one of the
// messages of marketpb. Objects that the on-chain program reads have fixed little-endian layouts instead:
//
//	LeaseCore   296 bytes   lease.go    signed by buyer and provider, tag "starling:lease"
//	Lease       424 bytes   lease.go    core ‖ provider signature ‖ buyer signature
//	KeySet      2 + 32·n    keyset.go   signers of vouchers, and their threshold
//	UnitProof   5 + 32·d    unit.go     this unit is in that lease
//
// PROTOCOL.md gives every layout with offsets and limits; testdata has test vectors for other implementations.
package market
