// Package link measures the path between two peers that are to be members of one cluster, before their leases are
// signed.
//
//	buyer ──measure──▶ provider a ──link──▶ provider b
//	      ◀─results───            ◀─echoes─
//
// The buyer requests measurements from a provider that holds units for it. The provider opens a stream to each other
// member, over the connection that the cluster would use. It exchanges a few echoes, and sends bytes at the full rate
// for a fraction of a second.
//
// It cannot be used to attack others. A provider measures only for the peer that commands a live hold with an overlay
// key, and bounds peers and bytes for each hold. The other end accepts echoes and bytes only while it serves the same
// buyer's cluster, within its own rates, and never answers with more than it received. The buyer cannot probe other
// machines at an address: it receives a class of error, for an address without the right peer only after the timeout.
// Private addresses are dialled only where package p2p does so. Frames on the stream: node/nodepb/link.proto.
package link
