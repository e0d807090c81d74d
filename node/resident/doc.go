// Package resident limits the resident memory of a long-running process to the pages in use.
//
// A peer touches most of its program at the start and while it runs jobs: some 50 MB, of which an idle peer needs 17.
// The kernel keeps all of it mapped and counted, and reclaims program pages last when memory is short. They are
// therefore unmapped once a minute: pages in use come back from the file's cache, with some hundred faults of a
// microsecond each, and the others are reclaimed first when memory is short.
package resident
