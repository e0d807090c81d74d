package executor

import (
	"errors"

	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

// Texts of failures, for buyers.
const (
	// NoEngine is the text of a container engine that does not answer; the operator's log has more.
	NoEngine = "this provider's container engine does not answer"

	endedOutside = "sandbox ended from outside: this machine or its container engine may have been stopped"
	notStarted   = "this provider could not start the program; another may"
	notStored    = "this provider could not store the outputs"
	notOffered   = "the runtime is no longer offered here"
)

// Reasons of executions that failed and not by their program, beside those of the runtime.
const (
	reasonLost   = string(runtime.ReasonLost)
	reasonOutput = "output" // its outputs cannot be stored
)

// errLate reports that fetching a program's files did not end in time.
var errLate = errors.New("fetching the job's files took too long")

// reasonOf is the reason of an execution that was not started. A fault of the image, or of an input's URL, would recur
// at every provider; others may not occur at the next.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, runtime.ErrBadImage):
		return protocol.ReasonImage
	case errors.Is(err, runtime.ErrNoProgram):
		return protocol.ReasonProgram
	case errors.Is(err, runtime.ErrCredentials):
		return protocol.ReasonCredentials
	case errors.Is(err, web.ErrAbsent):
		return protocol.ReasonInput
	}
	return protocol.ReasonStart
}

// unstarted is the result of an execution that was not started, or was stopped before.
func unstarted(err error, stopped bool) Result {
	reason := reasonOf(err)
	if stopped {
		reason = string(runtime.ReasonKilled)
	}
	return Result{State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: reason, Message: BuyersText(err, notStarted)}
}

// lost is the result of an execution that the runtime does not have.
func lost(message string) Result {
	return Result{State: nodepb.ExecState_EXEC_STATE_FAILED, Reason: reasonLost, Message: message}
}

// classes are errors that a buyer gets as class and advice. The rest of their text may be an engine's, a file system's
// or a stranger's, and name parts of this machine and its network.
var classes = []struct {
	of   error
	text string
}{
	{runtime.ErrEngine, NoEngine},
	{runtime.ErrBadImage, "image cannot be run: check its name, digest and platform"},
	{runtime.ErrCredentials, "registry refused the credentials: check the job's registryAuth and the image's name"},
	{runtime.ErrRegistry, "registry cannot be reached: check the image's name, or try again later"},
	{runtime.ErrNoRoom, "this provider's disk has no room; another may have"},
	{runtime.ErrDevice, "this provider could not provide the devices; another may"},
	{runtime.ErrNoOverlay, "this provider could not provide the network; another may"},
	{blob.ErrDigest, "file from the buyer: digest mismatch"},
	{blob.ErrNotFound, "file from the buyer: no longer available"},
	{blob.ErrDiskFull, "this provider's disk is full; another may have room"},
	{blob.ErrFull, "this provider's disk is full; another may have room"},
	{stream.ErrUnreachable, "file from the buyer: buyer not reachable"},
}

// plain are errors with a text of this program's alone, about the buyer's input or its program's output.
var plain = []error{
	workload.ErrWorkload, runtime.ErrNoProgram, runtime.ErrBadModule, blob.ErrTooLarge, blob.ErrTree, blob.ErrArchive,
}

// BuyersText returns the text of an error for buyers: the text of its class, or rest. The operator's log has the full
// error.
func BuyersText(err error, rest string) string {
	var f *runtime.Failure
	if errors.As(err, &f) {
		return f.Told()
	}
	var input *web.Failure
	if errors.As(err, &input) {
		return input.Told()
	}
	for _, p := range plain {
		if errors.Is(err, p) {
			return err.Error()
		}
	}
	for _, c := range classes {
		if errors.Is(err, c.of) {
			return c.text
		}
	}
	return rest
}
