// Package mystery is a verifier's mystery renter: it buys as ordinary buyers do, under keys that are not the verifier's, and remembers what
// it got for its money.
//
//	orders heard ──┐
//	tasks ─────────┼─▶ draw ─▶ purse: reserve, journalled ─▶ identity: a light client ─▶ job like any other ─▶ judge ─▶ reputation
//	clock ─────────┘            at most perDay a day          of its own key and wallet    with probes
//
// A purchase is a job of the ordinary light client (node/client), with its buying code, its protocols and its version: no field says
// what it is. What it asks for is drawn from the orders that this peer heard of others; the program is one whose result the operator
// knows. The result, the probes (verify/exclusive) and whether the lease was kept go into the verifier's own book as trade of its own, weighed
// as such: of a peer that fails it, the verifier thinks less, and nobody else has to take its word.
//
// Identities lie below the peer's home, one light client's home each. Each makes a few purchases and then no more. Their operator
// funds their wallets, from where nothing leads to the verifier: this package moves no money, since every transfer from the verifier's
// wallet would name it on chain.
//
// The records of its probes the verifier gives to everybody once an identity will never rent again: see Quiet.
//
// What still links an identity to its verifier: the address of the machine, for entry peers, if both use it; that one
// who hears orders here asks for the like of them later; the times at which this peer is up; programs that only its operator has.
package mystery
