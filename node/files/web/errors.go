package web

import "errors"

var (
	// ErrUnread means that a file could not be read from its URL. Another machine may be able to read it.
	ErrUnread = errors.New("input cannot be read")
	// ErrAbsent means that a URL does not have its file, for any machine.
	ErrAbsent = errors.New("input not found at its URL")
)

// Failure is a failed download. Its cause is only for the operator's log: it may quote a stranger and name hosts of the
// local network.
type Failure struct {
	Class  error  // ErrUnread or ErrAbsent
	URL    string // without its query; may be empty
	Advice string // for the buyer
	Cause  error  // nil if Advice is complete
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return f.Told()
	}
	return f.Told() + ": " + f.Cause.Error()
}

// Told returns the text for the buyer.
func (f *Failure) Told() string {
	told := f.Class.Error() + ": " + f.Advice
	if f.URL != "" {
		told = f.URL + ": " + told
	}
	return told
}

// Unwrap makes a Failure its class and its cause.
func (f *Failure) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Class}
	}
	return []error{f.Class, f.Cause}
}
