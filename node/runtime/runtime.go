package runtime

import (
	"context"
	"io"
	"net"
	"time"
)

// Runtime starts programs in a sandbox and reports how they ended. Its methods are safe for concurrent use. A method
// returns ErrNotFound for an unknown handle, and ErrBadHandle for a handle of another runtime.
type Runtime interface {
	// Name is the word offers and orders use for this runtime: "wasm", "docker".
	Name() string
	// Start checks the spec, prepares the program and returns when it is running. After an error, nothing is left
	// running or on disk. Errors: ErrInvalidSpec, ErrBadModule, ErrBadMount, ErrExists. Cancelling ctx abandons the
	// start; it does nothing once Start has returned.
	Start(ctx context.Context, s Spec) (Handle, error)
	// Wait returns how the execution ended, as soon as it has. It may be called many times, before and after the end,
	// and answers the same each time. Cancelling ctx ends the waiting, not the execution.
	Wait(ctx context.Context, h Handle) (Exit, error)
	// Stop requests the program to end, kills it after grace, and returns when it has ended. If grace is 0, the program
	// is killed at once. A program that ends by itself in the grace keeps its exit code and has no reason; a killed one
	// has ReasonKilled. Stopping an ended execution is no error.
	Stop(ctx context.Context, h Handle, grace time.Duration) error
	// Destroy kills the execution if it runs and removes everything the runtime kept for it, logs too. Mounts are left
	// alone. Destroying a missing execution is no error.
	Destroy(ctx context.Context, h Handle) error
	// Recover takes over an execution that an earlier process of the same peer started. It also succeeds if the
	// execution has ended since (Wait returns its end), or if this runtime already has it.
	Recover(ctx context.Context, h Handle) error
	Meter
}

// Meter measures executions. Every runtime does.
type Meter interface {
	// Stats returns the execution's usage so far; after the end, its total usage. ErrNotFound for an unknown handle.
	Stats(ctx context.Context, h Handle) (Stats, error)
}

// Logger is the ability to read an execution's output. Every runtime of this repository has it.
type Logger interface {
	// Logs reads one stream from a byte offset and follows it until the execution has ended, then returns io.EOF.
	// Closing the reader or cancelling ctx ends it early. A log is cut at Limits.LogMiB, with LogCutMarker at its end.
	Logs(ctx context.Context, h Handle, stream Stream, offset int64) (io.ReadCloser, error)
}

// Checker is the ability to refuse quickly a file that cannot be a program of this runtime, before a buyer pays a
// provider for the attempt.
type Checker interface {
	// CheckModule returns ErrBadModule for a file that cannot run. No error does not mean that it can.
	CheckModule(path string) error
}

// Pauser is the ability to freeze an execution and continue it. The wall-time limit runs on while it is frozen. A pause
// ends with the peer's process: a recovered execution runs.
type Pauser interface {
	// Pause freezes every process of the execution. Pausing a paused one is no error; an ended one returns ErrEnded.
	Pause(ctx context.Context, h Handle) error
	// Resume continues it. It does nothing if the execution runs, and returns ErrEnded if it has ended. Stop resumes a
	// paused execution.
	Resume(ctx context.Context, h Handle) error
}

// Volumer is the ability to bound writable mounts by a file system of their own, which refuses writes without room.
type Volumer interface {
	// MakeVolume makes dir a directory with room for the given bytes and for volume.Files of them. Writable mounts of a
	// spec with that disk limit may be below it. volume.Release removes it. It returns ErrNoVolume if this machine has
	// no volumes, and ErrNoRoom if its disk is full.
	MakeVolume(ctx context.Context, dir string, bytes int64) error
	// KeepsLayers reports whether Spec.Layer is used.
	KeepsLayers() bool
}

// Storer is the ability to keep directories: an execution has no program, and is a directory while it runs. Other
// executions mount it.
type Storer interface {
	Runtime
	// Directory returns the directory of a running execution. It returns ErrEnded after its end.
	Directory(h Handle) (string, error)
	// Hold delays the removal of the directory of an execution, which need not be recovered yet, until leave is called.
	// gone is closed once the execution is to end.
	Hold(h Handle) (gone <-chan struct{}, leave func())
}

// Attacher is the ability to run one more program in an execution's sandbox, under its limits.
type Attacher interface {
	// Attach runs the program and returns its exit code when it has ended. Input is read until its end or the
	// program's; cancelling ctx kills the program. ErrEnded if the execution has ended.
	Attach(ctx context.Context, h Handle, p Process) (code int, err error)
}

// Process is a program to attach.
type Process struct {
	Args    []string          // program and arguments
	Env     map[string]string // on top of the execution's own
	WorkDir string            // "" means the execution's own
	TTY     bool              // a terminal: stdout and stderr are one
	Size    <-chan Size       // of the terminal, as it changes; nil without one
	Stdin   io.Reader         // nil: at its end at once
	Stdout  io.Writer
	Stderr  io.Writer
}

// Size is a terminal's size in characters.
type Size struct{ Rows, Cols uint16 }

// Dialer is the ability to connect to a TCP port of the program, at its loopback address or at its overlay's address.
type Dialer interface {
	// Dial connects to 127.0.0.1:port inside the sandbox and, if refused, to Spec.Overlay's address. It returns
	// ErrEnded if the execution has ended; any other error means that no program listens there. The connection has a
	// CloseWrite, as a *net.TCPConn has.
	Dial(ctx context.Context, h Handle, port uint16) (net.Conn, error)
}

// Prober is the ability to say whether anything could be started now.
type Prober interface {
	// Probe returns ErrEngine while nothing can be started, because the container engine does not answer. It is quick.
	Probe(ctx context.Context) error
}

// Images is the ability to run container images.
type Images interface {
	// Pull downloads an image (Spec.Image) unless this machine has it, and checks its digest. progress is optional; it
	// is called with the bytes done and known so far. It returns ErrBadImage for a missing image or a wrong digest,
	// ErrCredentials if the registry refuses, and ErrRegistry if the registry cannot be reached.
	Pull(ctx context.Context, image string, auth *RegistryAuth, progress func(done, total int64)) error
	// HasImage reports whether Pull would find it here.
	HasImage(ctx context.Context, image string) bool
}

// RegistryAuth opens a private registry. It stays in memory: no runtime writes it anywhere.
type RegistryAuth struct {
	Username string
	Password string
}

// Stream is one of the two outputs of a program.
type Stream string

const (
	// Stdout is the standard output.
	Stdout Stream = "stdout"
	// Stderr is the standard error, with the runtime's own report of a crash.
	Stderr Stream = "stderr"
)

// LogCutMarker begins the last line of a log that reached its limit; everything after it was dropped.
const LogCutMarker = "\n[starling: log cut here, limit of "

// StopFile is a path in the guest that exists after a Stop with a grace, for runtimes without signals (wasm). A program
// that saves its work should check for it regularly. A seeded program (Spec.Seed) never sees it: Stop ends such a
// program at once.
const StopFile = ControlDir + "/stop"

// ControlDir is the guest directory that the runtime keeps for itself. No mount may lie at or in it.
const ControlDir = "/run/starling"

// GuardPath is a program in every container, which the runtime brings. Attached with a subcommand it is a server for
// the buyer, as of package sftpd.
const GuardPath = ControlDir + "/guard"

// Spec is a program to run with its bounds.
type Spec struct {
	// ID names the execution in logs: 1 to 128 of [A-Za-z0-9._-], not starting with a dot.
	ID string `json:"id"`
	// Module is the program of a wasm execution: the path of a WASI module on this machine.
	Module string `json:"module,omitempty"`
	// Image is the program of a container: a reference with its digest, "registry/name@sha256:…", pulled already.
	// Exactly one of Module and Image is set.
	Image string `json:"image,omitempty"`
	// Entrypoint replaces the image's own; nil keeps it.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// Args are the arguments after the program's name; for an image they replace its default command unless empty.
	Args []string `json:"args,omitempty"`
	// WorkDir is the directory in which a container's program starts; if "", the image's.
	WorkDir string `json:"work_dir,omitempty"`
	// GPUs are the devices a container gets, as its engine names them: NVIDIA UUIDs. None: it sees no GPU.
	GPUs []string `json:"gpus,omitempty"`
	// Overlay is the network of a container, with the peer at its other end. It is optional; if nil, the container has
	// only a loopback interface.
	Overlay *Overlay `json:"overlay,omitempty"`
	// Secrets are files the program finds under SecretsDir, by name, on a file system in memory. Values are never
	// written to disk nor shown by Handle.
	Secrets map[string][]byte `json:"-"`
	// SecretEnv is environment that is handled like Secrets. It overrides Env.
	SecretEnv map[string]string `json:"-"`
	// Env is the whole environment; nothing of the peer's own is passed on.
	Env map[string]string `json:"env,omitempty"`
	// Mounts are the only directories the program sees.
	Mounts []Mount `json:"mounts,omitempty"`
	// Layer is an optional directory in the volume of the writable mounts, absent or empty, for files that a container
	// writes outside its mounts. A runtime that keeps layers (Volumer) then runs the image with the image's user and a
	// writable root. If Layer is "", or with another runtime, the root is read-only. Destroy leaves Layer in place.
	Layer string `json:"layer,omitempty"`
	// Limits are its limits.
	Limits Limits `json:"limits"`
	// User, 1 to MaxUser, selects a user of this machine that only programs with the same number share, if the runtime
	// can: some kernel limits apply per user, across containers. Such a user has no name in any image: HOME, USER and
	// LOGNAME are set unless image or Env set them. 0 is the peer's own user.
	User uint32 `json:"user,omitempty"`
	// Dir is the execution's private directory on this machine: absolute, absent or empty. The runtime creates and owns
	// it.
	Dir string `json:"dir"`
	// Seed, if not zero, makes a runtime deterministic where it can. Clocks start at a fixed time and advance only when
	// read or slept on. Randomness is a stream of the seed. Directories are sorted, file times are fixed and NaNs are
	// canonical. A request to stop is not visible.
	Seed uint64 `json:"seed,omitempty"`
}

// MaxUser is the largest Spec.User. A container runtime may give each a range of 65,536 users of the machine.
const MaxUser = 2240

// Network is the reachable network of a job's executions.
type Network string

const (
	// NetworkNone is a loopback interface only.
	NetworkNone Network = ""
	// NetworkInternet is the outside as the provider allows it, never the provider's own machine or local network.
	NetworkInternet Network = "internet"
)

// SecretsDir is the directory of Spec.Secrets for the program.
const SecretsDir = "/run/secrets"

// Mount shows a host directory to the program.
type Mount struct {
	Host     string `json:"host"`  // absolute path of an existing directory
	Guest    string `json:"guest"` // absolute, clean, not "/", not in another mount
	ReadOnly bool   `json:"read_only,omitempty"`
	// RoomMiB is the limit of a writable mount that has its own; 0 means that its files count for Limits.DiskMiB.
	RoomMiB uint32 `json:"room_mib,omitempty"`
}

// Limits bound one execution. A zero means the default.
type Limits struct {
	MemoryMiB uint32        `json:"memory_mib,omitempty"` // memory of the program; DefaultMemoryMiB
	ShmMiB    uint32        `json:"shm_mib,omitempty"`    // /dev/shm, part of MemoryMiB; half of that
	MilliCPU  uint32        `json:"milli_cpu,omitempty"`  // thousandths of a core; no limit
	DiskMiB   uint32        `json:"disk_mib,omitempty"`   // all writable mounts together; DefaultDiskMiB
	LogMiB    uint32        `json:"log_mib,omitempty"`    // each of the two logs; DefaultLogMiB
	Pids      uint32        `json:"pids,omitempty"`       // processes and threads; PidsPerMiB, DefaultPids
	WallTime  time.Duration `json:"wall_time,omitempty"`  // from start to end; no limit
}

const (
	// DefaultMemoryMiB is the memory of a program without one in its spec.
	DefaultMemoryMiB = 512
	// DefaultDiskMiB is the default room in writable mounts.
	DefaultDiskMiB = 1024
	// DefaultLogMiB is the default length at which each log is cut.
	DefaultLogMiB = 16
	// DefaultPids is the default limit on processes and threads of a container, and PidsPerMiB the limit for each MiB
	// of its memory.
	DefaultPids, PidsPerMiB = 4096, 2
)

// WithDefaults fills in the defaults.
func (l Limits) WithDefaults() Limits {
	if l.MemoryMiB == 0 {
		l.MemoryMiB = DefaultMemoryMiB
	}
	if l.ShmMiB == 0 {
		l.ShmMiB = max(l.MemoryMiB/2, 1)
	}
	if l.DiskMiB == 0 {
		l.DiskMiB = DefaultDiskMiB
	}
	if l.LogMiB == 0 {
		l.LogMiB = DefaultLogMiB
	}
	if l.Pids == 0 {
		l.Pids = uint32(min(uint64(l.MemoryMiB)*PidsPerMiB, DefaultPids))
	}
	return l
}

// Reason is the cause of an execution's end if that was not its own exit.
type Reason string

const (
	// ReasonNone: the program exited, with Code.
	ReasonNone Reason = ""
	// ReasonOOM: it failed after being refused memory at its limit.
	ReasonOOM Reason = "oom"
	// ReasonTimeout: it reached its wall-time limit.
	ReasonTimeout Reason = "timeout"
	// ReasonKilled: Stop or Destroy killed it.
	ReasonKilled Reason = "killed"
	// ReasonDisk: it wrote more than its disk limit, where the sandbox cannot refuse the write itself, or it failed
	// after being refused room.
	ReasonDisk Reason = "disk"
	// ReasonTrap: it did a forbidden thing, such as reading outside its memory; stderr has the details.
	ReasonTrap Reason = "trap"
	// ReasonLost: it is gone and left no word: the machine went down, or something else killed it, or no peer was there
	// for it.
	ReasonLost Reason = "lost"
)

// Exit codes of executions that have none of their own.
const (
	CodeTimeout = 124
	CodeTrap    = 134
	CodeKilled  = 137
	CodeLost    = 255
)

// Exit is the end of an execution.
type Exit struct {
	Code    int       `json:"code"`
	Reason  Reason    `json:"reason,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// OK reports whether the program exited with code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Reason == ReasonNone }

// Stats is an execution's usage.
type Stats struct {
	CPUMillis uint64 // CPU time of the program and its sandbox, milliseconds
	MemoryMiB uint32 // memory now; the last known once ended
}
