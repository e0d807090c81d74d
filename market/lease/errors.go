package lease

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknownLease means that the book has no such lease.
	ErrUnknownLease = errors.New("no such lease")
	// ErrDoubleSale means that two live records hold one unit; a journal written by this package never has that.
	ErrDoubleSale = errors.New("one unit in two live records")
	// ErrRecord means that a record breaks its own rules.
	ErrRecord = errors.New("bad hold record")
	// ErrLimits means that a provider's limits cannot work.
	ErrLimits = errors.New("bad limits")
)

// InvalidTransition means that the shell reported an event that is impossible in the record's state.
type InvalidTransition struct {
	From, To State
	Event    string
}

// Error names the event and both states.
func (e *InvalidTransition) Error() string {
	return fmt.Sprintf("%s cannot take a hold from %s to %s", e.Event, e.From, e.To)
}
