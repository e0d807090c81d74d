package runtime

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// Gauger is the ability to measure an execution's hardware: it computes on the execution's processors or devices, under
// its limits, while the program is stopped.
type Gauger interface {
	// Gauge prepares the computation while the program runs, and returns when Multiply can start at once. It returns
	// ErrEnded if the execution has ended, and ErrDevice if its sandbox has no device that can compute.
	Gauge(ctx context.Context, h Handle) (Gauge, error)
}

// Gauge computes on the hardware of one execution. It must be used by one goroutine and closed.
type Gauge interface {
	// GPU reports whether the execution's GPUs compute, and not its processors.
	GPU() bool
	// Devices is how many compute at once: the GPUs of the execution, or 1.
	Devices() int
	// Multiply stops the program, computes the products of seeds[i] on device i, all at once, and resumes the program
	// in every case. It calls each with the tile hashes of a device, in order, when they are complete; calls may be
	// concurrent. Check the results with challenge.Commitment.Open: a buyer's program shares the sandbox. It returns
	// device.ErrMemory.
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
