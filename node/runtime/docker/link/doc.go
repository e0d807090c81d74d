// Package link connects the peer to the guards of its containers (package guard): it listens in a control directory,
// knows a guard by its token, exchanges the first words, and carries requests with their answers until the guard is
// gone.
//
//	Listen ──▶ Accept ──▶ Greet ──▶ Line: Begin ──▶ Next …; Send; Watch delivers the answers by their requests' IDs
//
// It needs the engine only to learn that a container without a guard has ended.
package link
