// Package rundir keeps the directory of an execution (runtime.Spec.Dir): the lock of the process that owns it, the
// state for a later process of the peer, the guard's report, and the files that an overlay shows. The package comment
// of runtime/docker lists them.
//
// The state's layout is a contract between builds: a later one refuses fields that it does not know, and recovers the
// executions that an earlier one left.
//
// It needs a file system of this machine, and no engine.
package rundir
