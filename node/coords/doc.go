// Package coords finds out where a peer is in the network, by Vivaldi (hashicorp/serf): it measures round trips to
// peers that it is connected to, asks each where it is itself, and moves a little so that the distance between the two
// coordinates becomes the round trip.
//
// Only measurements move it: the echo of a ping is random, so that a peer can seem farther than it is and never nearer.
// A peer's own coordinate is fixed-point and bounded (market.Coordinate: there is no NaN to send), and one that lies
// moves this peer by no more than an honest one at the same distance could, each time it is asked. Coordinates choose
// the peers to measure, and nothing else.
package coords
