package entry

import "errors"

// ErrBad means that an entry's answer cannot be from an honest entry.
var ErrBad = errors.New("the entry peer's answer is not sound")
