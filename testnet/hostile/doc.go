// Package hostile runs ten honest peers and an attacker: one machine with a hundred keys that runs all attacks at once
// that are open to unknown peers. Honest jobs run meanwhile. The peers are real processes in network namespaces, each
// in a network of its own, so that the limits per network apply here too.
package hostile
