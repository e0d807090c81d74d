// Command interpreter is starling-cuda without a GPU, for tests: the same program, with the PTX interpreter in the
// place of NVIDIA's driver. It has 64 MiB of memory and computes the same as a GPU, many millions of times more slowly.
// Built under the name starling-cuda and laid beside a peer's program, it answers for each of the peer's devices, under
// any UUID.
//
// STARLING_TEST_CUDA names a folder. A file there with a device's UUID for its name sets the device's fault: "slow" has
// it wait ten seconds before each product, "wrong" adds 1 to one entry of each, and "card NAME" makes it one with all
// others of that name: a card that needs four seconds for a product, and does one at a time.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/device/cuda/cudatest"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/helper"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
)

// memory is a device's memory, bytes. slow is the delay of a slow one before a product, and shared the time of a
// product of a card behind several devices.
const (
	memory = 64 << 20
	slow   = 10 * time.Second
	shared = 4 * time.Second
)

func main() {
	os.Exit(helper.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, open))
}

func open() (engine.GPU, wire.Description, error) {
	about := wire.Description{Capability: 80, Driver: 12040, Name: "PTX interpreter, not a GPU"}
	uuid := os.Getenv("CUDA_VISIBLE_DEVICES")
	_, digits, _ := strings.Cut(uuid, "-")
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil || uuid != "" && len(b) != len(about.UUID) {
		return nil, about, fmt.Errorf("CUDA_VISIBLE_DEVICES is %.60q and no UUID of a device", uuid)
	}
	copy(about.UUID[:], b)
	g, err := cudatest.New(about.Capability, memory)
	if err != nil {
		return nil, about, err
	}
	return &gpu{GPU: g, faults: os.Getenv("STARLING_TEST_CUDA"), uuid: uuid}, about, nil
}

// gpu is the interpreter, with its fault.
type gpu struct {
	*cudatest.GPU
	faults, uuid string
}

// Launch runs a kernel to its end.
func (g *gpu) Launch(k ptx.Kernel, blocks int, args ...uint64) error {
	fault := ""
	if k.Name == ptx.Gemm.Name && g.faults != "" && g.uuid != "" {
		b, err := os.ReadFile(filepath.Join(g.faults, g.uuid))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		fault = strings.TrimSpace(string(b))
	}
	if fault == "slow" {
		time.Sleep(slow)
	}
	if name, ok := strings.CutPrefix(fault, "card "); ok {
		f, err := os.OpenFile(filepath.Join(g.faults, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close() // and with it the lock
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return err
		}
		time.Sleep(shared)
	}
	if err := g.GPU.Launch(k, blocks, args...); err != nil || fault != "wrong" {
		return err
	}
	var entry [4]byte // the first one of C
	if err := g.Read(entry[:], args[2]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(entry[:], binary.LittleEndian.Uint32(entry[:])+1)
	return g.Write(args[2], entry[:])
}
