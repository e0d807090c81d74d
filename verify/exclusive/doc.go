// Package exclusive lets the buyer of a lease measure, while its work runs, that nobody else uses the leased units. The
// buyer can show the measurement to others.
//
// A probe is a small exact product (package challenge) that the provider computes in the place of the buyer's program,
// which stands still meanwhile:
//
//	buyer                                             provider
//	waits for an instant that it draws                readies a program inside the sandbox of the execution
//	pings                             ◀────────────▶
//	Question: nonce, shape, signed    ──────────────▶ computes with the execution's processors or devices
//	clock stops                       ◀────────────── Answer: root over all tiles, signed
//	pings                             ◀────────────▶
//	a second nonce                    ──────────────▶
//	checks 16 entries, by itself      ◀────────────── Opened: the drawn entries, signed
//	Measured: elapsed and round trip, signed
//
// The seed is made of the question, so nothing can be computed before it is known; the entries to open are drawn after
// the root. All of it with the lease is a [Record], which anybody can check offline: that this provider gave this
// answer to this question under this lease. Only the buyer attests its duration.
//
// [Watch] is the rule: two probes in a row at no more than three fifths of the speed that the units have shown are
// contention, and a wrong entry is wrong. [Budget] draws the instants: a Poisson process, so that no instant is safer
// than another, and at most a thousandth of the lease's time for all probes together.
//
// A [Snapshot] is the provider's statement of the devices' health, before and after the work; the buyer countersigns
// the same bytes. Layouts are at the types, PROTOCOL.md in the folder above has the reasons.
package exclusive
