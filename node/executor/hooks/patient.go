package hooks

import (
	"context"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// patient fetches files for programs that are about to start. The providers of a wide job all send requests to its
// buyer at once, and the buyer serves a bounded number at a time; the others wait. The context ends with the job's time
// limit for fetching, or with the lease.
type patient struct{ executor.Files }

// Obtain implements executor.Files.
func (p patient) Obtain(ctx context.Context, at workload.Places, c cid.Cid, max int64) error {
	return stream.WhileBusy(ctx, func() error { return p.Files.Obtain(ctx, at, c, max) })
}
