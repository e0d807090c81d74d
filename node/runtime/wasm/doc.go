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
// A guest that computes without calling the host cannot be interrupted cheaply within a process (wazero's way makes it
// three times slower), so it is ended with its process. The child ends itself; the peer kills it only if it does not.
// Locks, not process IDs, show which processes live (package process): the kernel drops a process's locks at its death,
// and no other process can inherit them. When owner.lock is free, the child waits Config.Grace for another peer process
// to take it, and then ends with reason "lost".
//
// A paused child is a process that has stopped itself (SIGSTOP). On Linux a kernel timer wakes it every second to check
// that its peer lives; on other systems it stays stopped until a peer recovers it.
//
// # Files of an execution (Spec.Dir, mode 0700)
//
//	spec.json     the child's program                owner.lock  held by the peer's process
//	status.json   its progress; temp file + rename  alive.lock  held by the child
//	stdout.log, stderr.log   bounded                 child.log   the child's own errors, for operators
//	control/      mounted read-only at runtime.ControlDir, unless the guest is seeded
//
// # Enforced limits, and their means
//
//	memory     the guest's linear memory, by its allocator; the sandbox itself takes some 30 MiB more. The
//	           kernel bounds all memory of the child (childMemory): a few bytes of a module can name
//	           gigabytes of locals for the compiler, or of table entries. A child that the kernel refuses
//	           memory dies, and its execution has ended with reason "oom"
//	wall time  the child's timer; on Linux, if that fails, a kernel timer kills the child
//	CPU        a guest has one thread, so one core is the most it gets. Below 1000 MilliCPU, on Linux, the child stops
//	           itself (SIGSTOP, woken by a kernel timer) whenever it is ahead of its share; elsewhere MilliCPU is not
//	           enforced. On Linux guests run at nice 10, behind the peer.
//	disk       every growth of a file in a writable mount, before it happens; each file and directory counts one block
//	           more than its content, so the number of empty files is limited too
//	logs       LogMiB each, then a marker
//	paths      os.Root: a symlink that leads out of its mount cannot be followed; guests cannot make links at all
//	network    none: wasip1 has no sockets
//	modules    MaxModule bytes; imports other than wasi_snapshot_preview1 are refused at Start
//
// The child is confined before it reads any input (package confine), so a bug in the guest's sandbox does not expose
// the peer's files. On Linux it gets no new privileges. Landlock, if the kernel has it, allows only files of the
// execution, the program, the mounts and the compile cache, and no TCP or signals to other processes. Seccomp allows
// only the system calls that the sandbox needs: no sockets, no other programs, no tracing. The log names the parts that
// this system has.
//
// The compile cache (package compilecache) is shared by all children of a user's peers. If several children start a
// program at once, one compiles it and the others wait. A child gives the cache up before its guest's first
// instruction: with Landlock, a guest that broke out of its sandbox can neither read nor change the code of other
// guests. An entry has the SHA-256 of its program as its name, is renamed into place after an fsync, and has a
// checksum of its code. A torn or damaged entry is not run; the program is compiled again. A cache that other users
// could write is refused.
//
// A module's start section runs before Start returns, under the same limits. A module that traps there is ErrBadModule.
//
// # Probes
//
// A buyer's probe of its lease (verify/exclusive) runs in a process of its own beside the child, with one thread, the
// same share of a core and the same priority, while the child is stopped as for a pause. It is not visible to a seeded
// guest.
//
// # Seeded programs
//
// With Spec.Seed a program's results are a function of its code, arguments, environment, inputs, seed and limits
// (PROTOCOL.md of verify, section 10):
//
//	clocks      begin at 2022-01-01 UTC, advance by a microsecond when read and by the time slept; no sleep takes time
//	randomness  the ChaCha8 stream of the seed
//	files       directories in byte order of names; inode numbers in the order in which they are seen, one device, one
//	            link each; all times are those of the beginning; sizes of directories are 0. WASI shows neither modes
//	            nor owners
//	memory      grows to Limits.MemoryMiB and no further, disk to Limits.DiskMiB: the caller fixes both
//	floats      every NaN from arithmetic is the canonical one on every processor; the module is rewritten
//	            for it
//	threads, network, standard input, other environment, requests to stop: none
//
// Three things stay visible. An error of the provider's disk is one. The stack depth is another; an overflow is a trap
// without a result. A stop or a wall-time limit ends the program without a result.
//
// # The garbage collector of the child
//
// Go's collector must stop every goroutine, and a guest in machine code does not stop. A collection during a guest's
// computation would block the watchers until the next host call. The collector is therefore off while the guest runs,
// and runs within host calls if enough memory can be freed.
package wasm
