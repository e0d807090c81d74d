package runtime

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// Gauger is the ability to measure what an execution has: to compute in its place, with its processors or devices, under its limits.
type Gauger interface {
	// Gauge readies what computes, while the program goes on, and returns when a question can be answered at once. ErrEnded if the
	// execution has ended; ErrDevice where its sandbox has nothing that could compute.
	Gauge(ctx context.Context, h Handle) (Gauge, error)
}

// Gauge computes in the place of one execution's program. It is for one goroutine; Close it.
type Gauge interface {
	// Kind is what computes.
	Kind() exclusive.Kind
	// Multiply stops the program, computes the products of a seed and lets the program go on, whatever came of it. It gives the hash of
	// every tile, in order. Nothing but challenge.Commitment.Open says whether they are right: a buyer's program shares the sandbox.
	Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error)
	Close() error
}
