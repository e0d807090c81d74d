// Package sandbox makes the configuration of a program's container: the guard's command, the user, the mounts, and the
// limits on memory, CPU, processes and disk I/O. The package comment of runtime/docker describes the whole sandbox.
//
//	spec, image ──▶ Command: the guard's, by its order
//	           ├──▶ Mounts: checked, given to the user, held to the disk limit (package disk)
//	           └──▶ Container, Host: for the engine; LimitIO once the mounts are known
//
// It needs the engine's users and directories. It starts nothing.
package sandbox
