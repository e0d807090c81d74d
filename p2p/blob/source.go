package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob/blobpb"
	"github.com/starling-network/starling/p2p/stream"
)

// Source is a place that a blob is read from. Its bytes are believed only once their digest is known.
type Source interface {
	// Open returns the bytes of the blob from offset on, and its size, which is -1 if the source does not know it. It
	// returns ErrTooLarge if the blob has more than most bytes, and ErrDigest if it is shorter than offset.
	Open(ctx context.Context, c cid.Cid, offset, most int64) (body io.ReadCloser, size int64, err error)
}

// Peer is a peer that serves blobs.
type Peer struct {
	Host    host.Host // this peer's
	Network string
	ID      peer.ID
}

// Open implements Source.
func (p Peer) Open(ctx context.Context, c cid.Cid, offset, most int64) (io.ReadCloser, int64, error) {
	req := &blobpb.Request{Cid: c.Bytes(), Offset: uint64(offset)}
	head, body, err := transfer.Open(ctx, p.Host, p.Network, p.ID, req)
	var malformed *stream.Malformed
	if offset > 0 && errors.As(err, &malformed) { // more than the blob has: the first part was a lie
		return nil, 0, fmt.Errorf("%w: %w", ErrDigest, err)
	}
	if err != nil {
		return nil, 0, err
	}
	size := head.GetSize()
	switch {
	case size > uint64(most):
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, most)
	case body.Size != int64(size)-offset:
		err = fmt.Errorf("%w: %d bytes from %d of %d", stream.ErrBadReply, body.Size, offset, size)
	}
	if err != nil {
		return nil, 0, errors.Join(err, body.Close())
	}
	return body, int64(size), nil
}

// SumOf is the CID of everything that r has, and its length.
func SumOf(r io.Reader) (cid.Cid, int64, error) {
	h := sha256.New()
	n, err := io.CopyBuffer(h, onlyReader{r}, make([]byte, copyBuffer))
	if err != nil {
		return cid.Undef, n, err
	}
	return sumOf(h), n, nil
}
