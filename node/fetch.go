package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// fetchAgain is how often a fetch that broke off is taken up again without a byte more: enough for the peer to be
	// reached over another relay.
	fetchAgain = 4
	// fetchPause is the pause before that; it doubles each time.
	fetchPause = 250 * time.Millisecond
)

// fetch brings a blob from a peer into the store, unless it is there. A fetch that broke off in the middle, as when a relay
// dies or its limit is reached, goes on where it was.
func (n *Node) fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error {
	if n.p.Blobs.Has(c) {
		return nil
	}
	return resume(ctx, func(progress func(done, total int64)) error {
		return blob.Fetch(ctx, n.p.Host, n.tag, from, c, max, n.p.Blobs, progress)
	})
}

// resume calls fetch until it is done, fails for good, or has come no further for fetchAgain times. One that never began is
// not repeated, as its peer is not there, unless a relay cut it on its way. The error then says what to do.
func resume(ctx context.Context, fetch func(progress func(done, total int64)) error) error {
	var best int64
	pause := fetchPause
	for idle := 0; ; idle++ {
		was := best
		err := fetch(func(done, _ int64) { best = max(best, done) })
		if best > was {
			idle, pause = 0, fetchPause
		}
		var cut *stream.Relayed
		relayed := errors.As(err, &cut)
		switch {
		case err == nil || !errors.Is(err, stream.ErrUnreachable) || best == 0 && !relayed:
			return err
		case idle >= fetchAgain && relayed:
			return fmt.Errorf("%s came through, %d times no further: %w; %s", stream.Size(best), idle, err, stream.RelayAdvice)
		case idle >= fetchAgain:
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return err
		}
	}
}
