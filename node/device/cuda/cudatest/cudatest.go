// Package cudatest is a simulated GPU for tests: the real kernels, run by ptxsim.
package cudatest

import (
	"fmt"

	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/ptxsim"
)

// GPU is an engine.GPU. It does each launch at once.
type GPU struct {
	sim    *ptxsim.GPU
	module *ptxsim.Module
	// Launched, if set, is called before each launch; its error is the driver's.
	Launched func(k ptx.Kernel) error
}

// New returns a GPU of a compute capability, major·10 + minor, with memory in bytes.
func New(capability uint32, memory uint64) (*GPU, error) {
	text, err := ptx.Module(capability)
	if err != nil {
		return nil, err
	}
	m, err := ptxsim.Parse(text)
	if err != nil {
		return nil, err
	}
	return &GPU{sim: ptxsim.New(memory), module: m}, nil
}

// Memory returns the free and all bytes of the device's memory.
func (g *GPU) Memory() (free, total uint64, err error) {
	free, total = g.sim.Memory()
	return free, total, nil
}

// Alloc allocates size bytes and returns their address.
func (g *GPU) Alloc(size uint64) (uint64, error) {
	at, err := g.sim.Alloc(size)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", device.ErrMemory, err)
	}
	return at, nil
}

// Free gives an allocation back.
func (g *GPU) Free(at uint64) error { return g.sim.Free(at) }

// Launch runs a kernel to its end.
func (g *GPU) Launch(k ptx.Kernel, blocks int, args ...uint64) error {
	if g.Launched != nil {
		if err := g.Launched(k); err != nil {
			return err
		}
	}
	return g.sim.Launch(g.module, k.Name, blocks, k.Threads, args)
}

// Wait has nothing to wait for.
func (g *GPU) Wait() error { return nil }

// Read copies from the GPU.
func (g *GPU) Read(dst []byte, at uint64) error { return g.sim.Read(dst, at) }

// Write copies to the GPU, as no kernel does.
func (g *GPU) Write(at uint64, b []byte) error { return g.sim.Write(at, b) }
