package entry

import "errors"

// ErrBad: an entry's answer is not what an honest one sends.
var ErrBad = errors.New("the entry peer's answer is not sound")
