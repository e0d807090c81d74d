// Package attached uses the guard of an execution to start further programs in its container and to open connections to
// its ports. It carries their input, output and terminal sizes.
//
// It needs the connection to the guard (package link). A program or connection ends with its caller's context or with
// the execution.
package attached
