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

// fetch brings a blob from a peer into the store. One that is there costs nothing if the peer brought it before, or may read it
// here; else the peer sends it all the same, to show that it has more of it than its CID: it may be another's secret. A fetch that
// broke off in the middle, as when a relay dies or its limit is reached, goes on where it was.
func (n *Node) fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error {
	blobs, who := n.p.Blobs, peerHolder(from)
	if blobs.Has(c) && (from == n.p.Host.ID() || n.grants.allowed(from, c) || blobs.Brought(c, who)) {
		return nil
	}
	attempt := func(progress func(done, total int64)) error {
		return blob.Fetch(ctx, n.p.Host, n.tag, from, c, max, blobs, progress)
	}
	if blobs.Has(c) {
		p := blob.NewProof(blobs, c)
		attempt = func(progress func(done, total int64)) error {
			return p.Take(ctx, n.p.Host, n.tag, from, max, progress)
		}
	}
	if err := resume(ctx, attempt); err != nil {
		return err
	}
	return blobs.Bring(c, who)
}

// Holders of blobs: peers, and the API's keys. What is this peer's own, its own token may read, and nobody else.
func peerHolder(id peer.ID) string { return "peer " + id.String() }
func keyHolder(name string) string { return "key " + name }

// share lets a peer read a blob here, and says that it is its own too, also after a restart.
func (n *Node) share(to peer.ID, c cid.Cid) {
	n.grants.add(to, c)
	if err := n.p.Blobs.Bring(c, peerHolder(to)); err != nil {
		n.p.Log.Warn("who may have a blob is not written down", "cid", c, "err", err)
	}
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
