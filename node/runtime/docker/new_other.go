//go:build !linux

package docker

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/runtime"
)

// Runtime exists on Linux only.
type Runtime struct{ runtime.Runtime }

// New fails.
func New(context.Context, Config) (*Runtime, error) {
	return nil, errors.New("docker runtime: containers need Linux; on other systems run a peer in a Linux machine")
}
