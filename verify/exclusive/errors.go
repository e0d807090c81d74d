package exclusive

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
)

var (
	// ErrSize means that the size of a question's product is out of bounds.
	ErrSize = errors.New("size of the product is out of bounds")
	// ErrWrong reports that the result that a provider signed is not the product. The record that proves it counts
	// against the provider.
	ErrWrong = errors.New("the provider's answer to a probe is wrong")
	// ErrRecord means that a record or a snapshot proves nothing: its parts do not belong together, or are not signed
	// by the named keys.
	ErrRecord = errors.New("not a record of this lease")
)

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, what, fmt.Sprintf(format, args...))
}

func record(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRecord, fmt.Sprintf(format, args...))
}
