package cluster

import (
	"errors"
	"fmt"
)

var (
	// ErrPlan reports that a plan is malformed or that the data of a member is false. The text names it.
	ErrPlan = errors.New("cluster plan cannot be taken")
	// ErrOld means that a plan is not newer than the one in force.
	ErrOld = errors.New("cluster plan is not newer")
)

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPlan, fmt.Sprintf(format, args...))
}

// badMember returns an error that names the member.
func badMember(rank uint32, format string, args ...any) error {
	return bad("member %d: %s", rank, fmt.Sprintf(format, args...))
}
