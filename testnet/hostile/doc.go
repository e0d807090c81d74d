// Package hostile runs ten honest peers with an attacker among them: one machine with a hundred keys that does at once all that
// strangers can do to a peer over the network. Honest jobs run meanwhile. The peers are real processes in network namespaces, each
// with an address in a network of its own, so that what is bounded for each network is bounded here too.
package hostile
