// Package link measures the path between two peers that are to be members of one cluster, before their leases are
// signed.
//
//	buyer ──measure──▶ provider a ──link──▶ provider b
//	      ◀─results───            ◀─echoes─
//
// The buyer asks a provider that holds units for it to measure the paths to others. That one opens a stream to each,
// over the connection that everything else would use, has a few bytes echoed, and sends as many as it can for a
// fraction of a second.
//
// It cannot be used to attack others: a provider measures only for the peer that commands a live hold that named an
// overlay key, a bounded number of peers and bytes for each hold; the other end takes echoes and bytes only while it
// serves the same buyer's cluster, within rates of its own, and answers with no more than it gets. Nor does the buyer
// learn about other machines at an address: it gets a class of error, and for an address without the right peer only
// when the time is over. Addresses of private networks are dialled only where package p2p dials those of others. Frames
// on the stream: node/nodepb/link.proto.
package link
