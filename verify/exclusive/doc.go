// Package exclusive lets the buyer of a lease measure, while its work runs, that the leased units are not shared. The
// buyer can show the measurement to others.
//
// A probe is a small exact product (package challenge) that the provider computes in the place of the buyer's program,
// which is paused meanwhile:
//
//	buyer                                             provider
//	waits for an instant that it draws                prepares a program inside the sandbox of the execution
//	pings                             ◀────────────▶
//	Question: nonce, shape, signed    ──────────────▶ computes with the execution's processors or devices
//	clock stops                       ◀────────────── Answer: root over all tiles, signed
//	pings                             ◀────────────▶
//	a second nonce                    ──────────────▶
//	checks 16 entries, by itself      ◀────────────── Opened: the drawn entries, signed
//	Measured: elapsed and round trip, signed
//
// The seed is derived from the question, so nothing can be computed earlier. The entries to open are drawn after the
// root. All of it with the lease is a [Record]. It proves offline that this provider gave this answer to this question
// under this lease. Only the buyer attests its duration.
//
// [Watch] is the rule: two consecutive probes at three fifths of the units' known speed or less are contention. A wrong
// entry is wrong. [Budget] draws the instants by a Poisson process, so that no instant is safer than another. All
// probes together take at most a thousandth of the lease's time.
//
// A [Snapshot] is the provider's statement of the devices' health, before and after the work; the buyer countersigns
// the same bytes. Layouts are at the types, PROTOCOL.md in the folder above has the reasons.
package exclusive
