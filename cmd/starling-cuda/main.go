// Command starling-cuda answers challenges with an NVIDIA GPU, for the peer that starts it. It calls the driver's
// library, so it cannot be static as the peer is. A driver that ends or hangs its caller affects only this process.
package main

import (
	"os"

	"github.com/starling-network/starling/node/device/cuda/driver"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/helper"
	"github.com/starling-network/starling/node/device/cuda/wire"
)

func main() {
	open := func() (engine.GPU, wire.Description, error) { return driver.Open() }
	os.Exit(helper.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, open))
}
