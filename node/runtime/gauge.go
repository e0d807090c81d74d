package runtime

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// Gauger is the ability to measure an execution's hardware: to compute in its place, with its processors or devices,
// under its limits.
type Gauger interface {
	// Gauge readies the computation, while the program goes on, and returns when a question can be answered at once. It
	// returns ErrEnded if the execution has ended, and ErrDevice if its sandbox has nothing that could compute.
	Gauge(ctx context.Context, h Handle) (Gauge, error)
}

// Gauge computes in the place of one execution's program. It is for one goroutine; Close it.
type Gauge interface {
	// GPU reports whether the execution's GPUs compute, and not its processors.
	GPU() bool
	// Devices is how many compute at once: the GPUs of the execution, or 1.
	Devices() int
	// Multiply has the program stand still, device i compute the products of seeds[i], all at once, and the program go
	// on, whatever came of it. Each is given the hash of every tile of a device, in order, as soon as they are there;
	// it may be called by several goroutines. Nothing but challenge.Commitment.Open reports whether they are right: a
	// buyer's program shares the sandbox. device.ErrMemory.
	Multiply(ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(i int, tiles []sign.Hash) error) error
	Close() error
}

// One is Gauge.Multiply for one device.
func One(
	seeds []sign.Hash, each func(int, []sign.Hash) error, multiply func(seed sign.Hash) ([]sign.Hash, error),
) error {
	if len(seeds) != 1 {
		return fmt.Errorf("%w: %d products for one device", ErrDevice, len(seeds))
	}
	tiles, err := multiply(seeds[0])
	if err != nil {
		return err
	}
	return each(0, tiles)
}
