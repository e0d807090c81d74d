// Package coords computes a peer's coordinate in the network, by Vivaldi (hashicorp/serf). It measures round trips to
// connected peers, requests their coordinates, and moves its own so that the distance approaches the round trip.
//
// Only measurements move it. The echo of a ping is random, so a peer can seem farther than it is, but never nearer. A
// coordinate is fixed-point and bounded (market.Coordinate has no NaN). A lying peer moves this peer at most as far per
// request as an honest one at the same distance. Coordinates choose the peers to measure, and nothing else.
package coords
