// Package agent starts programs in other members of a cluster from inside a container, as rsh does, so that mpirun and
// its like need no sshd. The container has the binary at runtime.AgentPath:
//
//	rsh [options] HOST COMMAND…      the options of rsh and ssh that take no part in this are ignored
//
//	agent, in the container                                  the peer, at Address of the overlay
//	length u32 │ Request, JSON   ─────────────────────────▶  attaches the command in HOST's container
//	stdin, eof frames            ◀────────────────────────▶  stdout, stderr, exit or error frames (package live)
//
// Numbers are big-endian. The agent ends with the command's exit code, or with 255 as ssh does when it could not be
// run. Its own end breaks the connection, which ends the command.
//
// Nothing here is trusted: the peer holds requests to ReadRequest's bounds, and starts them where the plan of the
// cluster says that HOST is, with the rights of that container and no more.
package agent
