package runtime

import (
	"context"
	"io"
	"time"
)

// Runtime starts programs in a sandbox and knows how they ended. All methods may be called at once from many
// goroutines. A method that is given a handle it does not know returns ErrNotFound; a handle of another runtime, ErrBadHandle.
type Runtime interface {
	// Name is the word offers and orders use for this runtime: "wasm", "docker".
	Name() string
	// Start checks the spec, prepares the program and returns when it is running. On any error nothing is left
	// running or on disk. Errors: ErrInvalidSpec, ErrBadModule, ErrBadMount, ErrExists. Cancelling ctx abandons
	// the start; it does nothing once Start has returned.
	Start(ctx context.Context, s Spec) (Handle, error)
	// Wait returns how the execution ended, as soon as it has. It may be called many times, before and after the end,
	// and answers the same each time. Cancelling ctx ends the waiting, not the execution.
	Wait(ctx context.Context, h Handle) (Exit, error)
	// Stop asks the program to end, kills it when grace has passed, and returns when it has ended. With no grace it is
	// killed at once. A program that ends by itself in the grace keeps its exit code and has no reason; a killed one has
	// ReasonKilled. Stopping what has ended is no error.
	Stop(ctx context.Context, h Handle, grace time.Duration) error
	// Destroy kills the execution if it runs and removes everything the runtime kept for it, logs too. Mounts are left
	// alone. Destroying what is not there is no error.
	Destroy(ctx context.Context, h Handle) error
	// Recover takes over an execution that an earlier process of the same peer started. It succeeds too when the
	// execution has ended meanwhile (Wait says how) and when it is this runtime's already.
	Recover(ctx context.Context, h Handle) error
	// Stats says what the execution has used so far; after the end, what it used in all.
	Stats(ctx context.Context, h Handle) (Stats, error)
}

// Logger is the ability to read an execution's output. Every runtime of this repository has it.
type Logger interface {
	// Logs reads one stream from a byte offset and follows it until the execution has ended, then gives io.EOF. Closing
	// the reader or cancelling ctx ends it early. A log is cut at Limits.LogMiB, which LogCutMarker at its end tells.
	Logs(ctx context.Context, h Handle, stream Stream, offset int64) (io.ReadCloser, error)
}

// Checker is the ability to say quickly that a file cannot be a program of this runtime, so that a buyer does not pay a
// provider to find out.
type Checker interface {
	// CheckModule returns ErrBadModule for a file that cannot run. No error does not mean that it can.
	CheckModule(path string) error
}

// Stream is one of the two outputs of a program.
type Stream string

const (
	// Stdout is the standard output.
	Stdout Stream = "stdout"
	// Stderr is the standard error, with what the runtime itself has to say about a crash.
	Stderr Stream = "stderr"
)

// LogCutMarker begins the last line of a log that reached its limit; everything after it was dropped.
const LogCutMarker = "\n[starling: log cut here, limit of "

// StopFile is a path in the guest that exists once Stop with a grace was called, for runtimes without signals (wasm).
// A program that wants to save its work looks for it from time to time.
const StopFile = ControlDir + "/stop"

// ControlDir is the guest directory that the runtime keeps for itself. No mount may lie at or in it.
const ControlDir = "/run/starling"

// Spec says what to run and within which bounds.
type Spec struct {
	// ID names the execution in logs: 1 to 128 of [A-Za-z0-9._-], not starting with a dot.
	ID string `json:"id"`
	// Module is the program: for wasm the path of a WASI module on this machine.
	Module string `json:"module"`
	// Args are the arguments after the program's name.
	Args []string `json:"args,omitempty"`
	// Env is the whole environment; nothing of the peer's own is passed on.
	Env map[string]string `json:"env,omitempty"`
	// Mounts are the only directories the program sees.
	Mounts []Mount `json:"mounts,omitempty"`
	// Limits bound what it may use.
	Limits Limits `json:"limits"`
	// Dir is the execution's private directory on this machine: absolute, absent or empty. The runtime creates and owns it.
	Dir string `json:"dir"`
	// Seed, when not zero, makes a runtime that can do so deterministic: clocks start at a fixed time and advance only
	// by being read or slept on, randomness is a stream of the seed, directories are sorted and file times fixed.
	Seed uint64 `json:"seed,omitempty"`
}

// Mount shows a host directory to the program.
type Mount struct {
	Host     string `json:"host"`  // absolute path of an existing directory
	Guest    string `json:"guest"` // absolute, clean, not "/", not in another mount
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Limits bound one execution. A zero takes the default named beside it.
type Limits struct {
	MemoryMiB uint32        `json:"memory_mib,omitempty"` // memory of the program; DefaultMemoryMiB
	MilliCPU  uint32        `json:"milli_cpu,omitempty"`  // thousandths of a core; no limit
	DiskMiB   uint32        `json:"disk_mib,omitempty"`   // all writable mounts together; DefaultDiskMiB
	LogMiB    uint32        `json:"log_mib,omitempty"`    // each of the two logs; DefaultLogMiB
	WallTime  time.Duration `json:"wall_time,omitempty"`  // from start to end; no limit
}

const (
	// DefaultMemoryMiB is the memory of a program whose spec does not say.
	DefaultMemoryMiB = 512
	// DefaultDiskMiB is the room in writable mounts where the spec does not say.
	DefaultDiskMiB = 1024
	// DefaultLogMiB is the length at which each log is cut where the spec does not say.
	DefaultLogMiB = 16
)

// WithDefaults fills in the defaults.
func (l Limits) WithDefaults() Limits {
	if l.MemoryMiB == 0 {
		l.MemoryMiB = DefaultMemoryMiB
	}
	if l.DiskMiB == 0 {
		l.DiskMiB = DefaultDiskMiB
	}
	if l.LogMiB == 0 {
		l.LogMiB = DefaultLogMiB
	}
	return l
}

// Reason says why an execution ended otherwise than by its own exit.
type Reason string

const (
	// ReasonNone: the program ended by itself and Code is its own.
	ReasonNone Reason = ""
	// ReasonOOM: it failed after being refused memory at its limit.
	ReasonOOM Reason = "oom"
	// ReasonTimeout: it reached its wall-time limit.
	ReasonTimeout Reason = "timeout"
	// ReasonKilled: Stop or Destroy killed it.
	ReasonKilled Reason = "killed"
	// ReasonTrap: it did what no program may, such as reading outside its memory; stderr has the details.
	ReasonTrap Reason = "trap"
	// ReasonLost: it is gone and left no word: the machine went down, or something else killed it, or no peer was there for it.
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

// OK says that the program did what it was asked: ended by itself with code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Reason == ReasonNone }

// Stats is what an execution has used.
type Stats struct {
	CPUMillis uint64 // CPU time of the program and its sandbox, milliseconds
	MemoryMiB uint32 // memory now; the last known once ended
}
