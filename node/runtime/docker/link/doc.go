// Package link connects the peer to the guards of its containers (package guard): it listens in a control directory,
// identifies a guard by its token, exchanges greetings, and carries requests and answers until the guard is gone.
//
//	Listen ──▶ Accept ──▶ Greet ──▶ Line: Begin ──▶ Next …; Send; Watch delivers the answers by their requests' IDs
//
// It uses the engine only to detect the end of a container without a guard.
package link
