package web

import "errors"

var (
	// ErrUnread says that a file could not be read from its URL. Another machine may be able to.
	ErrUnread = errors.New("input cannot be read")
	// ErrAbsent says that a URL does not have its file, for any machine.
	ErrAbsent = errors.New("input is not at its URL")
)

// Failure is a failed download. Its cause is for the operator's log alone: it may quote a stranger, and name parts of
// this machine's network.
type Failure struct {
	Class  error  // ErrUnread or ErrAbsent
	URL    string // without its query; may be empty
	Advice string // for the buyer
	Cause  error  // nil where Advice says everything
}

func (f *Failure) Error() string {
	if f.Cause == nil {
		return f.Told()
	}
	return f.Told() + ": " + f.Cause.Error()
}

// Told is the text for the buyer.
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
