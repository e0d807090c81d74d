// Command starling-nvml queries NVIDIA's driver about this machine's GPUs, for the peer that starts it. It needs cgo,
// which the peer does not have. A driver that ends or hangs its caller affects only this process.
package main

import (
	"os"

	"github.com/starling-network/starling/node/gpu/nvml"
)

func main() {
	os.Exit(nvml.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
