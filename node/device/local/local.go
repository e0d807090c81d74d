// Package local opens the devices of this machine that answer audits: its processor, and its GPUs by the program
// starling-cuda.
package local

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/verify/audit"
)

// Processors is the class of a machine's own processor and memory.
const Processors market.Class = "cpu"

// Open opens the device of a unit. A processor gets memory bytes for its dataset.
func Open(ctx context.Context, u market.Unit, memory uint64) (device.Device, error) {
	switch {
	case u.Class.Family() == Processors:
		return cpu.New(cpu.Config{
			Model: u.Model, Serial: u.Serial, Memory: memory, Threads: max(int(u.MilliCPU/1000), 1),
		}), nil
	case u.Simulated && !audit.Interpreted():
		return nil, fmt.Errorf("device %s: simulated: it computes nothing", u.Model)
	}
	return cuda.Open(ctx, cuda.Config{UUID: u.Serial})
}
