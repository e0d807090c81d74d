// Package audit is the public record of a hardware audit: the committee, its questions, the answers and their times. It
// can be checked later, by peers that took no part.
//
// Time is divided into windows. Each window has a beacon, which draws whether the window has an audit. In an audit,
// every unit of the network is challenged at one instant (Instants), by a committee that the beacon draws for its
// provider. Each member gives three nonces, one after the other, and measures the time between them with its own clock:
//
//	provider                                    member, one of up to 11
//	   │ ── Begin: window, units, shapes ──────────▶ │   drawn for this provider? at the instant?
//	   │ ◀────────────────────────── first nonce ─── │   clock starts
//	   │ all units compute their products            │
//	   │ ── product roots, givers of nonces ───────▶ │   clock stops
//	   │ ◀───────────────────────── second nonce ─── │   clock starts
//	   │ all units walk                              │
//	   │ ── Answer: both roots, signed ────────────▶ │   clock stops
//	   │ ◀────────────────────────── third nonce ─── │
//	   │ ── openings, Shown, signed ───────────────▶ │   checks them
//	   │ ◀────────────────────────────── Verdict ─── │   signed
//
// The seed of the products is derived from the beacon and all first nonces. The opened entries and the walkers' starts
// are derived from all second nonces, the shown walkers from all third. A member's nonces are a hash chain that it
// chose before the first, so no member chooses last. One honest member is enough to make each seed unpredictable. Each
// member that gave a first nonce must give a verdict, or the attempt is void: otherwise a provider could drop members
// afterwards, and so choose among their nonces. A void attempt continues to its end. Members that saw the unit work in
// it judge the unit once more. A window has MaxAttempts attempts, which honest members count.
//
//	Answer    280 bytes   provider: "these are the roots of my unit for this seed"
//	Shown      72 bytes   provider: "and these are the opened entries"
//	Verdict   184 bytes   member: nonces, times, and whether everything was as it must be
//	Record   ≤ 64 KiB     all of it
//
// Results cannot be faked while one judging member is honest: openings are public, and drawn by the nonces of all.
// Times rest on the committee, of which more than two thirds must agree. An audit does not show the place of the
// hardware. A signed wrong opening (Shown), two answers to one question, and a verdict that passes a wrong opening are
// provable lies: Lie. A late, silent or slow unit is not a lie; it only sells less.
//
// The package is pure. PROTOCOL.md beside verify gives every offset, testdata has vectors.
package audit
