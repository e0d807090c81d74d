//go:build !linux

package resident

import "context"

// Run returns at once: only Linux is known to keep what a program does not use.
func Run(context.Context) {}
