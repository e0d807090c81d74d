//go:build !linux || (!amd64 && !arm64)

package driver

import (
	"errors"

	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/wire"
)

// Open refuses: the driver's library is called on Linux alone.
func Open() (engine.GPU, wire.Description, error) {
	return nil, wire.Description{}, engine.NoLibrary(errors.New("libcuda.so.1 is called on Linux, on amd64 and arm64"))
}
