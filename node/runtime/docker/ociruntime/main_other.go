//go:build !linux

package ociruntime

// Main does nothing: containers are Linux's.
func Main() {}
