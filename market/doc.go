// Package market is what peers trade and the words they trade in: units of capacity, offers, orders, quotes, leases, and
// money as integers. Everything here is a checked value; the package starts nothing, reads no clock and draws no
// random number, so time is an argument wherever it matters.
//
//	Offer  provider → all      what it sells, at what price        signed protobuf, DHT and gossip
//	Order  buyer → all         what it wants, up to what price     signed protobuf, gossip and stream "ask"
//	Quote  provider → buyer    what it would do this order for     signed protobuf, streams "ask" and "quote"
//	Lease  provider ⇄ buyer    units sold, signed by both          fixed layout, stream "lease"
//
// Offers, orders and quotes travel in a sign.Envelope: key[32] ‖ signature[64] ‖ payload, the payload one of the
// messages of marketpb. What the on-chain program must read is a fixed little-endian layout instead:
//
//	LeaseCore   296 bytes   lease.go    signed by buyer and provider, tag "starling:lease"
//	Lease       424 bytes   lease.go    core ‖ provider signature ‖ buyer signature
//	KeySet      2 + 32·n    keyset.go   who signs the vouchers, and how many of them must
//	UnitProof   5 + 32·d    unit.go     this unit is in that lease
//
// PROTOCOL.md gives every layout with offsets and limits; testdata has test vectors for other implementations.
package market
