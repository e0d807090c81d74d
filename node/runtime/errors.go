package runtime

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidSpec means that a Spec breaks a rule of this package; the error that wraps it is a *SpecError.
	ErrInvalidSpec = errors.New("invalid execution spec")
	// ErrBadModule reports that the program itself cannot be run: missing, malformed, or with needs that the sandbox
	// does not meet.
	ErrBadModule = errors.New("program cannot be run")
	// ErrBadImage reports that a container image cannot be run: not found, not matching its digest, or made for another
	// machine.
	ErrBadImage = errors.New("image cannot be run")
	// ErrNoProgram reports that an image is there, and that its program, or the directory to start in, is missing in it
	// or cannot be executed.
	ErrNoProgram = errors.New("program of the image cannot be started")
	// ErrCredentials reports that a registry does not give an image to these credentials.
	ErrCredentials = errors.New("registry refused the credentials")
	// ErrNoImage reports that this machine does not keep an image.
	ErrNoImage = errors.New("no such image")
	// ErrImageUsed reports that an image cannot be removed, because an execution uses it or may be about to.
	ErrImageUsed = errors.New("image is in use")
	// ErrRegistry means that a registry could not be reached or broke off.
	ErrRegistry = errors.New("registry cannot be reached")
	// ErrNoRoom means that this machine's disk has no room for an image, or for the files of an execution.
	ErrNoRoom = errors.New("no room on the disk")
	// ErrNoVolume means that this machine has no file systems to give to executions.
	ErrNoVolume = errors.New("no volume can be given")
	// ErrEngine means that the container engine does not answer.
	ErrEngine = errors.New("container engine does not answer")
	// ErrDevice means that a requested device does not exist or is not available.
	ErrDevice = errors.New("device cannot be given")
	// ErrEnded reports that the call needs a running execution and this one has ended.
	ErrEnded = errors.New("execution has ended")
	// ErrBadMount means that a mount's host directory is missing, not a directory, or over the disk limit already.
	ErrBadMount = errors.New("mount cannot be used")
	// ErrExists means that the spec's directory already holds an execution.
	ErrExists = errors.New("execution already exists")
	// ErrNotFound means that this runtime has no such execution: never started, destroyed, or not recovered after a
	// restart.
	ErrNotFound = errors.New("no such execution")
	// ErrBadHandle means that a handle is malformed or belongs to another runtime.
	ErrBadHandle = errors.New("bad execution handle")
	// ErrNoOverlay reports that the call needs an execution with an overlay, or a machine that can give one.
	ErrNoOverlay = errors.New("no overlay network")
	// ErrClosed means that the runtime was closed.
	ErrClosed = errors.New("runtime is closed")
)

// Failure is an error with a class and advice for the other side. Its cause is only for the operator's log: it may
// quote an engine or a stranger and name hosts of the local network.
type Failure struct {
	Class  error  // one of the errors above
	Of     string // its object, in the other side's words; may be empty
	Advice string // for the other side
	Cause  error  // nil if Advice is complete
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return f.Told()
	}
	return f.Told() + ": " + f.Cause.Error()
}

// Told returns the text for the other side.
func (f *Failure) Told() string {
	told := f.Class.Error() + ": " + f.Advice
	if f.Of != "" {
		told = f.Of + ": " + told
	}
	return told
}

// Unwrap makes a Failure its class and its cause.
func (f *Failure) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Class}
	}
	return []error{f.Class, f.Cause}
}

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
