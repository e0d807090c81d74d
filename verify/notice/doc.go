// Package notice has the public record of one unit in one hour: its leases, and receipts that both sides signed.
// Provider and buyers publish it, anybody reads it, and it reveals a provider that sold the unit twice.
//
// A notice is kept by a network that stores one value under one key and cannot join two. So the publisher reads the
// stored notice, joins it with its own, and stores the result. Nobody signs a notice; its parts are signed by a
// provider and a buyer each, and are valid from any source.
//
//	buyer 1 ── receipt of slots 1000–1150 ──┐
//	                                        ├─ Join ─▶ (provider, unit, day, hour) ─▶ Conflicts
//	buyer 2 ── receipt of slots 1024–1174 ──┘
//
// Which receipts stay when there are too many, both publishers must choose alike without knowing of each other, or two
// leases would be seen to overlap and no two receipts would. They take those that cover the roundest slots: those with
// the most factors of two. Slots are the same for everybody, so where two leases overlap for long enough, both keep a
// receipt over the same slot. It also bounds a provider's means to crowd others out: its own receipts over other round
// slots are few, and receipts over the same ones are the proof.
package notice
