//go:build !linux

package resident

import "context"

// Run returns at once: only Linux is known to keep unused pages.
func Run(context.Context) {}
