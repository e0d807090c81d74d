// Package hostile runs ten honest peers with an attacker among them: one machine with a hundred keys that runs all
// attacks at once that strangers can run over the network. Honest jobs run meanwhile. The peers are real processes in
// network namespaces, each with an address in a network of its own, so that limits for each network hold here too.
package hostile
