// Package exclusive lets the buyer of a lease measure that it has all of what it pays for, while its work runs, and show it to
// others: the renter measures, not the landlord.
//
// A probe is a small exact product (package challenge) that the provider computes in the place of the buyer's program, which
// stands still meanwhile:
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
// The seed is made of the question, so nothing can be computed before it is known; what is opened is drawn after the root. All of
// it with the lease is a [Record], which anybody can check offline: that this provider gave this answer to this question under
// this lease. How long it took is the buyer's word alone.
//
// [Watch] is the rule: two probes in a row at no more than three fifths of the speed that the units have shown are contention, and a wrong entry
// is wrong. [Budget] draws the instants: a Poisson process, so that no instant is safer than another, and at most a thousandth of the
// lease's time for all probes together.
//
// A [Snapshot] is what the provider says of the devices' health, before the work begins and when it has ended; the buyer signs the
// same bytes when it has seen them. Layouts are at the types, PROTOCOL.md in the folder above has the reasons.
package exclusive
