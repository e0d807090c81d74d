package runtime

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidSpec says that a Spec breaks a rule of this package; the error that wraps it is a *SpecError.
	ErrInvalidSpec = errors.New("invalid execution spec")
	// ErrBadModule says that the program itself cannot be run: missing, malformed, or in need of what the sandbox does not give.
	ErrBadModule = errors.New("program cannot be run")
	// ErrBadImage says that a container image cannot be run: not found, not what its digest says, or made for another machine.
	ErrBadImage = errors.New("image cannot be run")
	// ErrNoProgram says that an image is there, and what it or the job names as its program, or the directory to start in, is not in it or
	// cannot be executed.
	ErrNoProgram = errors.New("program of the image cannot be started")
	// ErrCredentials says that a registry does not give an image to whoever asked.
	ErrCredentials = errors.New("registry refused the credentials")
	// ErrRegistry says that a registry could not be reached or broke off.
	ErrRegistry = errors.New("registry cannot be reached")
	// ErrEngine says that the container engine does not answer.
	ErrEngine = errors.New("container engine does not answer")
	// ErrDevice says that a device was asked for that is not there or cannot be given.
	ErrDevice = errors.New("device cannot be given")
	// ErrEnded says that what was asked needs a running execution and this one has ended.
	ErrEnded = errors.New("execution has ended")
	// ErrBadMount says that a mount's host directory is missing, not a directory, or over the disk limit already.
	ErrBadMount = errors.New("mount cannot be used")
	// ErrExists says that the spec's directory already holds an execution.
	ErrExists = errors.New("execution already exists")
	// ErrNotFound says that this runtime has no such execution: never started, destroyed, or not recovered after a restart.
	ErrNotFound = errors.New("no such execution")
	// ErrBadHandle says that a handle is malformed or belongs to another runtime.
	ErrBadHandle = errors.New("bad execution handle")
	// ErrNoOverlay says that what was asked needs an execution with an overlay, or a machine that can give one.
	ErrNoOverlay = errors.New("no overlay network")
	// ErrClosed says that the runtime was closed.
	ErrClosed = errors.New("runtime is closed")
)

// SpecError names the field of a Spec that is wrong. errors.Is(err, ErrInvalidSpec) holds.
type SpecError struct {
	Field  string // as in Go: "Limits.MemoryMiB", "Mounts[2].Guest"
	Reason string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalidSpec, e.Field, e.Reason)
}

// Unwrap makes a SpecError an ErrInvalidSpec.
func (e *SpecError) Unwrap() error { return ErrInvalidSpec }
