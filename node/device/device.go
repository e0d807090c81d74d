// Package device is hardware that answers challenges (verify/challenge): one interface, and a folder for each kind.
//
//	cuda  NVIDIA GPUs through the driver, in a helper process
//	cpu   the processor, in portable Go; bit for bit the same answers
//	sim   no hardware: real answers to small challenges in the time that hardware of a class would take, on a virtual
//	      clock
//
// A device computes and measures no time: its caller does. All devices of a peer get their challenges at once, so that
// one card cannot answer for two.
package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

var (
	// ErrMemory means that a dataset or a product does not fit the memory that the device has free.
	ErrMemory = errors.New("not enough free memory on the device")
	// ErrNoDataset means that the walk's dataset is not resident: never filled, evicted, or replaced.
	ErrNoDataset = errors.New("the dataset is not resident on the device")
	// ErrClosed means that the device was closed.
	ErrClosed = errors.New("the device is closed")
)

// Kind is a sort of hardware.
type Kind string

// The kinds.
const (
	CUDA Kind = "cuda"
	CPU  Kind = "cpu"
	Sim  Kind = "sim"
)

// Info is a device's description of itself. Nothing of it is proof.
type Info struct {
	Kind       Kind   `json:"kind"`
	Model      string `json:"model"`
	Serial     string `json:"serial"`               // GPU UUID or machine id, as in market.Unit
	Memory     uint64 `json:"memory"`               // bytes that a dataset may take now
	Capability uint32 `json:"capability,omitempty"` // compute capability, major·10 + minor
	Simulated  bool   `json:"simulated,omitempty"`
}

// Device answers challenges. Calls may be concurrent and are run one after the other; each ends early when its context
// does. An error other than ErrClosed leaves the device usable.
type Device interface {
	Info() Info
	Multiplier
	Walker
	Close() error
}

// Multiplier answers challenges of matrix products.
type Multiplier interface {
	// Multiply computes the products of a seed and gives the hash of every tile, in order.
	Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error)
	// Commit is Multiply with the commitment to all tiles, which is built while products are computed.
	Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error)
}

// Walker answers challenges of memory: walks over one resident dataset.
type Walker interface {
	// Fill makes a dataset resident, in the place of the one before. ErrMemory when it does not fit.
	Fill(ctx context.Context, d Dataset) error
	// Evict gives the dataset's memory back, for work.
	Evict(ctx context.Context) error
	// Walk walks all walkers of a walk key over the resident dataset and gives the hashes of their ends, group by
	// group. ErrNoDataset.
	Walk(ctx context.Context, key uint64, d Dataset, w challenge.Walk) ([]sign.Hash, error)
	// Ends walks the walkers of one group again and gives their ends. ErrNoDataset.
	Ends(ctx context.Context, key uint64, d Dataset, w challenge.Walk, group uint32) ([]uint64, error)
}

// Dataset names a dataset: its seed and size.
type Dataset struct {
	Seed  sign.Hash
	Cells uint64
	Work  uint32
}

// Of is the dataset that a walk goes over.
func Of(seed sign.Hash, w challenge.Walk) Dataset {
	return Dataset{Seed: seed, Cells: w.Cells, Work: w.Work}
}

// Holds reports, with ErrNoDataset, that a walk does not go over the dataset that is resident; nil when it does.
func Holds(resident *Dataset, d Dataset, w challenge.Walk) error {
	switch {
	case resident == nil:
		return fmt.Errorf("%w: none is", ErrNoDataset)
	case *resident != d || d.Cells != w.Cells || d.Work != w.Work:
		return fmt.Errorf("%w: %d cells of %s are", ErrNoDataset, resident.Cells, resident.Seed.Short())
	}
	return nil
}
