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
	// ErrNoRoom says that this machine's disk has no room for an image, or for the files of an execution.
	ErrNoRoom = errors.New("no room on the disk")
	// ErrNoVolume says that this machine has no file systems to give to executions.
	ErrNoVolume = errors.New("no volume can be given")
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

// Failure is an error of which the other side is told the class and an advice. Its cause may be the words of an engine or of a stranger,
// and name what is in this machine's network: it is for the operator's log alone.
type Failure struct {
	Class  error  // one of the errors above
	Of     string // what it is of, in the other side's words; may be empty
	Advice string // for the other side
	Cause  error  // nil where Advice says everything
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return f.Told()
	}
	return f.Told() + ": " + f.Cause.Error()
}

// Told is the text for the other side.
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
