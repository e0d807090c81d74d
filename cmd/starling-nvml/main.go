// Command starling-nvml asks NVIDIA's driver about this machine's GPUs, for the peer that starts it. It needs cgo and
// the peer does not have it; and a driver that ends or hangs its caller ends or hangs only this process.
package main

import (
	"os"

	"github.com/starling-network/starling/node/gpu/nvml"
)

func main() {
	os.Exit(nvml.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
