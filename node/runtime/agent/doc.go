// Package agent starts programs in other members of a cluster from inside a container, as rsh does, so that mpirun and
// its like need no sshd. The container has the binary at runtime.AgentPath:
//
//	rsh [options] HOST COMMAND…      other options of rsh and ssh are ignored
//
//	agent, in the container                                  the peer, at Address of the overlay
//	length u32 │ Request, JSON   ─────────────────────────▶  attaches the command in HOST's container
//	stdin, eof frames            ◀────────────────────────▶  stdout, stderr, exit or error frames (package live)
//
// Numbers are big-endian. The agent ends with the command's exit code, or with 255 as ssh does when it could not be
// run. When the agent ends, the connection breaks and the command is ended.
//
// Requests are not trusted. The peer checks them against the bounds of ReadRequest. It starts a command in the
// container that the cluster's plan gives for HOST, with that container's rights.
package agent
