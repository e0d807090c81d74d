package rayjobs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/starling-network/starling/node/live"
)

var (
	// ErrUnreachable says that nothing answers at the head's port, or that the answer broke off.
	ErrUnreachable = errors.New("ray's dashboard does not answer")
	// ErrToken says that the cluster takes another token than this one.
	ErrToken = errors.New("the ray cluster does not take the token")
	// ErrNoJob says that the cluster knows no job of that id. Jobs end with the head that they were submitted to.
	ErrNoJob = errors.New("the ray cluster has no such job")
	// ErrExists says that a job of that id was submitted before.
	ErrExists = errors.New("the ray cluster has a job of this id already")
	// ErrAnswer says that the answer is not what Ray's Jobs API says, or longer than is read.
	ErrAnswer = errors.New("the answer is not one of ray's jobs api")
	// ErrPackage says that a working directory cannot be sent.
	ErrPackage = errors.New("the working directory cannot be sent")
	// ErrID says that a text is not the id of a job.
	ErrID = errors.New("not an id of a ray job")
)

// Error is what Ray refused, and why.
type Error struct {
	Status int
	Reason string // one line of what Ray said
}

func (e *Error) Error() string { return fmt.Sprintf("ray refuses it (%d): %s", e.Status, e.Reason) }

// maxReason bounds what is shown of Ray's reason, runes.
const maxReason = 400

// frame is a line of a Python traceback's frames, which say nothing to a user.
var frame = regexp.MustCompile(`[\pL\pN]`)

// Reason is the line that says why in a text that may be a Python traceback: its last one.
func Reason(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(live.Clean(lines[i]))
		if !frame.MatchString(line) {
			continue
		}
		if r := []rune(line); len(r) > maxReason {
			line = string(r[:maxReason]) + "…"
		}
		return line
	}
	return "no reason given"
}
