//go:build !unix

package livecmd

// watchSize does nothing: this system does not report changes of a terminal's size.
func watchSize(func()) (stop func()) { return func() {} }
