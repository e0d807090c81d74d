// Package attached starts programs beside that of an execution, and opens connections to its ports, both by its guard:
// it carries their input, output and sizes.
//
// It needs the line to the guard (package link). A program, and a connection, ends with its caller's context or with
// the execution.
package attached
