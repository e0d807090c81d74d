package notices

import "errors"

var (
	// ErrUntimely: a notice is about an hour long past, or one to come.
	ErrUntimely = errors.New("a notice of an hour that is over for long, or to come")
	// ErrMany means that no further unit can be watched.
	ErrMany = errors.New("too many units are watched")
	// ErrLight: a light client takes no part in the network.
	ErrLight = errors.New("a light client watches no units")
)
