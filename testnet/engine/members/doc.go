// Package members tests a cluster's members as they really are: containers of different engines at sites behind NATs, whose
// network is the overlay of their peers. It has no more than its tests; testnet/cluster shows what people run on clusters.
package members
