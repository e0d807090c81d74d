// Package resident keeps the resident memory of a process that runs for long near what it uses.
//
// A peer touches most of its program while it starts and while it does jobs: some 50 MB, of which it needs 17 when it
// has nothing to do. The kernel keeps all of it mapped and counts it, and takes pages of programs last when memory is
// short. So they are unmapped once a minute: those in use come back from the file's cache, with some hundred faults of
// a microsecond each, and the others are the first that a machine short of memory takes.
package resident
