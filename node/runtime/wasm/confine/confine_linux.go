package confine

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// enter takes from all threads of this process, for good and without privileges: new privileges by programs that have
// them, files outside the box, TCP, signals to others, and every system call that the guest's sandbox does not need. Of
// Landlock it takes as much as the kernel has.
func enter(b Box) (Confinement, error) {
	var c Confinement
	if err := b.confineFiles(); err != nil {
		return c, fmt.Errorf("confining files: %w", err)
	}
	if abi, err := landlocksys.LandlockGetABIVersion(); err == nil && abi >= leastLandlock {
		c.Landlock = abi
	}
	var err error
	if c.Seccomp, err = restrictCalls(); err != nil {
		return c, fmt.Errorf("confining system calls: %w", err)
	}
	return c, nil
}

// confineFiles adds a layer of Landlock: each layer only takes rights away.
func (b Box) confineFiles() error {
	return landlock.V9.BestEffort().Restrict(
		// The threads are listed when the process is put behind the peer.
		landlock.RODirs(append([]string{"/proc/self/task"}, b.Read...)...).IgnoreIfMissing(),
		landlock.ROFiles(b.Files...).IgnoreIfMissing(),
		landlock.RWDirs(slices.Concat(b.Write, b.Until)...).WithRefer().IgnoreIfMissing(),
	)
}

// leastLandlock is the first ABI that lets a guest move a file between directories. With an older ABI, Landlock is not
// used.
const leastLandlock = 2

// Offsets in struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArg0   = 16 // its lower half, on little endian
)

// restrictCalls lets this process make the system calls of its list only; others fail with ENOSYS. It reports false if
// there is no list for the processor: wazero compiles for none of those.
func restrictCalls() (bool, error) {
	if auditArch == 0 {
		return false, nil
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		no    = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	prog := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, Jt: 1, K: auditArch},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: offsetNumber},
	}
	for _, n := range append(calls[:len(calls):len(calls)], archCalls...) {
		prog = append(prog,
			unix.SockFilter{Code: equal, Jf: 1, K: n},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	only := func(n uint32, test unix.SockFilter) { // one call, if its first argument passes test
		test.Jf = 1
		prog = append(prog, unix.SockFilter{Code: equal, Jf: 4, K: n}, unix.SockFilter{Code: load, K: offsetArg0}, test,
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: ret, K: no})
	}
	only(unix.SYS_CLONE, unix.SockFilter{Code: bits, K: unix.CLONE_THREAD})
	self := uint32(unix.Getpid())
	only(unix.SYS_KILL, unix.SockFilter{Code: equal, K: self})
	only(unix.SYS_TGKILL, unix.SockFilter{Code: equal, K: self})
	prog = append(prog, unix.SockFilter{Code: ret, K: no})

	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// With TSYNC, no new privileges and the filter go to all threads.
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	goruntime.KeepAlive(prog)
	if e != 0 {
		return false, e
	}
	if r != 0 {
		return false, fmt.Errorf("thread %d: already has another filter", r)
	}
	return true, nil
}

// calls are the system calls that Go's runtime, the files of the guest and the watchers need. None opens a socket,
// starts a program, reads another process, mounts, or changes the identity of this one.
var calls = []uint32{
	// memory and threads
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MREMAP,
	unix.SYS_BRK, unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST,
	unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_RESTART_SYSCALL, unix.SYS_PRCTL,
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_UNAME, unix.SYS_GETRANDOM,
	unix.SYS_GETRUSAGE, unix.SYS_SETPRIORITY, unix.SYS_GETPRIORITY,
	// signals and time
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES,
	unix.SYS_GETTIMEOFDAY, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
	// files
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CLOSE, unix.SYS_READ, unix.SYS_WRITE,
	unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_LSEEK,
	unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_FCNTL, unix.SYS_FLOCK, unix.SYS_FSYNC,
	unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_GETDENTS64,
	unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_RENAMEAT2, unix.SYS_READLINKAT, unix.SYS_UTIMENSAT,
	unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FSTATFS,
	unix.SYS_COPY_FILE_RANGE, unix.SYS_GETCWD, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_EVENTFD2,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL,
	// narrowing, which only takes rights away
	unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF,
}
