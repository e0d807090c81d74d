// Package members tests real members of clusters: containers of different engines at sites behind NATs, with the
// overlay of their peers as network. It contains only tests; testnet/cluster shows complete clusters.
package members
