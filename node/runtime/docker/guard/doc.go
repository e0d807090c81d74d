// Package guard is the first process of every container of runtime/docker: a small parent of the program inside the
// container. It has the functions that the engine does not offer and that the peer cannot provide while it is down.
//
//   - It gives the program exactly its environment, its secrets, and each log at most its limit.
//   - It ends the program at its wall-time limit, and when no peer was connected for the grace.
//   - It starts attached programs and opens connections to the program's ports.
//   - It stops all other processes while a gauge, its own binary attached as a program, computes a probe of the lease.
//     It kills a process that evades this.
//   - It reports at the end how the program ended and its usage.
//
// It runs as the program's user, without capabilities, or as root of a user namespace (package ociruntime), where it
// starts programs as the user that the image names. The program can neither trace nor read it. The peer passes it open
// files over a socket, so the container needs no writable path to them:
//
//	peer                                                  guard (process 1)
//	listens on control/guard.sock
//	creates and starts the container  ──────────────────▶ connects
//	run + order (in memory), stdout, stderr, report ────▶ writes secrets, starts the program
//	removes the socket                ◀────────────────── it runs since …, or an error
//	term, kill, usage, dial, attach, cancel …◀──────────▶ answers, each with its request's ID
//	                                        report ◀───── the program has ended: everything else is killed, then the
//	                                                      report written, then the connection closed by the
//	                                                      guard's own end
//
// If the connection breaks, the guard is dead, and with it the container, or the peer is gone. The guard then tries to
// reconnect until the grace has passed. The program could connect to the socket too, so a peer accepts only a
// connection that begins with the order's token.
//
// Started as "net", it holds a network instead of a program, in a separate container: it makes a TUN device and passes
// it to the peer on each request. Connection and grace work in the same way.
//
// Messages are packets (SOCK_SEQPACKET) of one JSON object, at most MaxPacket bytes, with up to MaxFiles descriptors.
// Larger or secret data travels in a memory file. Descriptors go to guards only, except the TUN device, so that a guard
// can run in a sandbox that passes none out (gVisor). For a dialled connection or a terminal, the guard copies to and
// from a socket of the peer.
//
// The binary is bind-mounted into the container, so it must be statically linked (CGO_ENABLED=0). It is starling-guard,
// which has this package and others that containers need, or the peer's own binary if that is missing.
package guard
