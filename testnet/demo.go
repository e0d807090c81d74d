package testnet

import (
	"context"
	"io"
)

// DemoOptions of a demonstration.
type DemoOptions struct {
	Dir string
	RPC string
	Out io.Writer
}

// Demo runs the demonstration.
func Demo(ctx context.Context, o DemoOptions) error { return nil }
