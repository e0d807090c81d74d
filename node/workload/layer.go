package workload

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

// LayerCID returns the name in the store of blobs of a layer with a SHA-256, hexadecimal.
func LayerCID(digest string) (cid.Cid, error) {
	h, err := hex.DecodeString(digest)
	if err != nil || len(h) != len(sign.Hash{}) {
		return cid.Undef, fmt.Errorf("layer: digest: got %.80q, want 64 hexadecimal digits", digest)
	}
	return CIDOf(sign.Hash(h))
}

// Layer is a layer in its registry, as the origin of a blob.
type Layer struct{ runtime.Layer }

var _ Origin = Layer{}

// Name implements Origin.
func (l Layer) Name() string { return l.From.Name() }

// Open implements blob.Source.
func (l Layer) Open(ctx context.Context, _ cid.Cid, offset, most int64) (io.ReadCloser, int64, error) {
	switch {
	case l.Size > most:
		return nil, 0, fmt.Errorf("%w: %d bytes, at most %d", blob.ErrTooLarge, l.Size, most)
	case offset > l.Size:
		return nil, 0, fmt.Errorf("%w: offset %d of %d", blob.ErrDigest, offset, l.Size)
	}
	body, err := l.From.Read(ctx, offset, l.Size-offset)
	return body, l.Size, err
}

// Part implements swarm.Supplier.
func (l Layer) Part(ctx context.Context, _ cid.Cid, _, offset int64, into []byte) ([]byte, error) {
	body, err := l.From.Read(ctx, offset, int64(len(into)))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if _, err := io.ReadFull(body, into); err != nil {
		return nil, fmt.Errorf("%w: %w", stream.ErrUnreachable, err)
	}
	return nil, nil
}
