//go:build !linux

package guard

// Main returns: containers of other systems have no guard.
func Main() {}
