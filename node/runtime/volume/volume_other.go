//go:build !linux

package volume

import "context"

// Make is ErrUnavailable.
func Make(context.Context, string, int64) error { return ErrUnavailable }

// Keep is ErrUnavailable.
func Keep(context.Context, string, string, int64) error { return ErrUnavailable }

// Remount is ErrUnavailable.
func Remount(string, string) error { return ErrUnavailable }

// Try is ErrUnavailable.
func Try(context.Context, string, int) error { return ErrUnavailable }

// Release does nothing: there are no volumes.
func Release(string) error { return nil }

// Mounted lists no volumes.
func Mounted(string) ([]string, error) { return nil, nil }
