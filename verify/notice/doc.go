// Package notice implements the public record of one unit in one hour: its leases, and receipts that both sides signed.
// Provider and buyers publish it. It reveals a provider that sold the unit twice.
//
// The DHT stores one value under one key and cannot join two. So the publisher reads the stored notice, joins it with
// its own, and stores the result. A notice is not signed. Each of its parts is signed by a provider and a buyer, and is
// valid from any source.
//
//	buyer 1 ── receipt of slots 1000–1150 ──┐
//	                                        ├─ Join ─▶ (provider, unit, day, hour) ─▶ Conflicts
//	buyer 2 ── receipt of slots 1024–1174 ──┘
//
// If there are too many receipts, both publishers must drop the same ones, independently. Otherwise two leases would
// overlap in the notice, but no two receipts would. They keep the receipts that cover the roundest slots, which have
// the most factors of two. Slots are global, so if two leases overlap for long enough, both keep a receipt over the
// same slot. This also bounds a provider's means to crowd out other receipts: its own receipts over other round slots
// are few, and receipts over the same slots are the proof.
package notice
