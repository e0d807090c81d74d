// Package wasm runs WASI programs (wasip1) in wazero, each in a child process of the peer's own binary. It is the
// runtime that every peer has: nothing needs to be installed.
//
// # Processes
//
//	peer ── Start ──▶ child: starling wasm-exec DIR
//	  │ flock owner.lock        │ flock alive.lock
//	  │                         ├─ guest        the program, one thread of machine code
//	  └─ waits, re-adopts       └─ watchers     wall time, CPU share, peer gone, usage, SIGTERM
//
// A guest that computes without calling the host cannot be interrupted inside a process cheaply (wazero's own way makes
// it three times slower), so that ending it means ending its process. The child ends itself; the peer kills it only if
// it does not. Locks, not process ids, show which processes live (package process): the kernel drops them with their
// process however it dies, and no other process can inherit them. When owner.lock is free the child waits Config.Grace
// for another peer process to take it, and then ends with reason "lost".
//
// A paused child is a process that has stopped itself (SIGSTOP). On Linux a kernel timer wakes it every second to see
// whether its peer still lives; elsewhere it stays stopped until a peer recovers it.
//
// # Files of an execution (Spec.Dir, mode 0700)
//
//	spec.json     the child's program                owner.lock  held by the peer's process
//	status.json   how far it is; temp file + rename  alive.lock  held by the child
//	stdout.log, stderr.log   bounded                 child.log   the child's own last words, for people
//	control/      mounted read-only at runtime.ControlDir, unless the guest is seeded
//
// # Enforced limits, and their means
//
//	memory     the guest's linear memory, by its allocator; the sandbox itself takes some 30 MiB more. The
//	           kernel bounds all memory of the child (childMemory): a few bytes of a module can name
//	           gigabytes of locals for the compiler, or of table entries. A child that the kernel refuses
//	           memory dies, and its execution has ended with reason "oom"
//	wall time  the child's timer; on Linux a kernel timer kills it if that should fail
//	CPU        a guest has one thread, so one core is the most it gets. Below 1000 MilliCPU, on Linux, the child stops
//	           itself (SIGSTOP, woken by a kernel timer) whenever it is ahead of its share; elsewhere MilliCPU is not
//	           enforced. On Linux guests run at nice 10, behind the peer.
//	disk       every growth of a file in a writable mount, before it happens; each file and directory counts one block
//	           more than its content, so that empty files cannot be without end
//	logs       LogMiB each, then a marker
//	paths      os.Root: a symlink that leads out of its mount cannot be followed; guests cannot make links at all
//	network    there is none: wasip1 has no sockets and none are given
//	modules    MaxModule bytes; imports other than wasi_snapshot_preview1 are refused at Start
//
// The child itself is confined before it reads anything (package confine), so that a bug in the guest's sandbox does
// not lead to the peer's files. On Linux there are no new privileges; by Landlock, as far as the kernel has it, no file
// but those of the execution, the program, the mounts and the compile cache, no TCP and no signal to others; by seccomp
// no system call that the sandbox does not need, so no socket of any kind, no other program, no look into another
// process. The log names this system's parts. The compile cache (package compilecache) is shared by all children: one
// that broke out of its sandbox could change another one's code within the same confines. Of children that start a
// program at once, one compiles it and the others wait.
//
// A module's start section runs before Start returns, under the same limits. One that traps there is a bad module.
//
// # Probes
//
// A buyer's probe of its lease (verify/exclusive) runs in a process of its own beside the child, with one thread, the
// same share of a core and the same priority, while the child is stopped as for a pause. A seeded guest sees nothing of
// it.
//
// # Seeded programs
//
// With Spec.Seed a program's results are a function of its code, arguments, environment, inputs, seed and limits
// (PROTOCOL.md of verify, section 10):
//
//	clocks      begin at 2022-01-01 UTC, go on by a microsecond when read and by the time slept; nobody really sleeps
//	randomness  the ChaCha8 stream of the seed
//	files       directories in byte order of names; inode numbers in the order in which they are seen, one device, one
//	            link each; all times are those of the beginning; sizes of directories are 0. WASI shows neither modes
//	            nor owners
//	memory      grows to Limits.MemoryMiB and no further, disk to Limits.DiskMiB: the caller fixes both
//	floats      every NaN that arithmetic makes is the canonical one, whatever the processor; the module is rewritten
//	            for it
//	threads, network, standard input, other environment, requests to stop: there are none
//
// These stay visible: an error of the provider's own disk; how deep calls may nest before the stack overflows, which is
// a trap and no result; and a stop or a limit on wall time, which ends the program and leaves no result.
//
// # The garbage collector of the child
//
// Go's collector must stop every goroutine, and a guest in machine code does not stop. A collection that began while a
// guest computes would freeze the watchers until its next host call. So it is off while the guest runs, and runs
// instead within a host call, when there is enough to collect.
package wasm
