package relay

import "errors"

// ErrConfig: the relay's limits cannot work.
var ErrConfig = errors.New("bad relay configuration")
