package notices

import "errors"

var (
	// ErrUntimely is returned for a notice of an hour too far in the past or in the future.
	ErrUntimely = errors.New("notice: hour is too old or in the future")
	// ErrMany means that no further unit can be watched.
	ErrMany = errors.New("too many units are watched")
	// ErrLight: a light client takes no part in the network.
	ErrLight = errors.New("a light client watches no units")
)
