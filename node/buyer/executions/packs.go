package executions

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// ErrPack is returned for a pack of a checkpoint that no rank can continue from: it is not what its provider reported,
// or has no room in the disk of the job.
var ErrPack = errors.New("checkpoint cannot be kept")

// Packs are the blobs of a peer.
type Packs interface {
	Size(c cid.Cid) (int64, error)
	// CheckTree checks that a blob can be unpacked into max bytes.
	CheckTree(ctx context.Context, c cid.Cid, max int64) (int64, error)
}

// Pack fetches a pack of a program's checkpoint, which may have room bytes unpacked, and checks that it can be
// unpacked. It returns ErrPack, or an error that may pass. The digest alone is proven: the files may be false.
func (c *Client) Pack(
	ctx context.Context, x Execution, l Lease, p *nodepb.Pack, room int64, into Packs,
) (jobs.File, error) {
	b := p.GetBlob()
	id, err := work.CID(b)
	if err != nil {
		return jobs.File{}, fmt.Errorf("%w: its digest is malformed", ErrPack)
	}
	most := min(c.cfg.MaxOutput, work.MaxOutputs(max(room, 0)))
	if !b.Tree || b.Size == 0 || b.Size > uint64(most) {
		return jobs.File{}, fmt.Errorf("%w: a tree of %d bytes: want a tree of 1 to %d", ErrPack, b.Size, most)
	}
	err = c.fetch(ctx, x, l, id, int64(b.Size))
	if errors.Is(err, blob.ErrDigest) || errors.Is(err, blob.ErrTooLarge) {
		return jobs.File{}, fmt.Errorf("%w: %w", ErrPack, err)
	}
	if err != nil {
		return jobs.File{}, fmt.Errorf("fetching a checkpoint: %w", err)
	}
	f := jobs.File{CID: id.String(), Bytes: int64(b.Size), Tree: true}
	if n, err := into.Size(id); err != nil {
		return f, fmt.Errorf("reading a checkpoint: %w", err)
	} else if n != f.Bytes {
		return f, fmt.Errorf("%w: %d bytes, reported were %d", ErrPack, n, f.Bytes)
	}
	if _, err = into.CheckTree(ctx, id, room); errors.Is(err, blob.ErrArchive) || errors.Is(err, blob.ErrTooLarge) {
		return f, fmt.Errorf("%w: %w", ErrPack, err)
	}
	return f, err
}
