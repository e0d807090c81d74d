// Package cluster is what the ranks of a cluster agree on: the key by which each takes part in the overlay network of all.
package cluster
