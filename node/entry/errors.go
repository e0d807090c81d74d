package entry

import "errors"

// ErrBad: an entry's answer is not one that an honest entry sends.
var ErrBad = errors.New("the entry peer's answer is not sound")
